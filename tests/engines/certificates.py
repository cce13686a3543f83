"""Certificates for an engine that is reached over TLS; each set has Docker's file names: ca.pem, cert.pem, key.pem."""

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from .places import CACHE

_DAYS = 365
_REMADE_AFTER = 300 * 86_400


@dataclass(frozen=True)
class Certificates:
    """A folder with the certificate and key of one side, and the authority that it trusts."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def cert(self) -> Path:
        return self.folder / "cert.pem"

    @property
    def key(self) -> Path:
        return self.folder / "key.pem"


@dataclass(frozen=True)
class Authority:
    """The two sets of certificates that one authority has signed, for 127.0.0.1."""

    server: Certificates
    client: Certificates


def ensure(name: str) -> Authority:
    """An authority with its two certificates, which are made again long before they expire."""
    place = CACHE / "certificates" / name
    authority = Authority(Certificates(place / "server"), Certificates(place / "client"))
    made = authority.client.key
    if not made.exists() or time.time() - made.stat().st_mtime > _REMADE_AFTER:
        _make(place, authority)
    return authority


def _make(place: Path, authority: Authority) -> None:
    place.mkdir(parents=True, exist_ok=True)
    ca = Certificates(place)
    # Python 3.13 and newer accept no authority without its key usage, and for openssl everything is an authority.
    _openssl(ca, "basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign")
    for side, use in ((authority.server, "serverAuth"), (authority.client, "clientAuth")):
        side.folder.mkdir(exist_ok=True)
        side.ca.write_bytes(ca.cert.read_bytes())
        _openssl(side, "basicConstraints=critical,CA:FALSE", f"extendedKeyUsage={use}", signer=ca)


def _openssl(into: Certificates, *extensions: str, signer: Certificates | None = None) -> None:
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days {_DAYS}".split()
    command += [
        "-subj",
        f"/CN=llm-sandbox-mcp tests {into.folder.name}",
        "-out",
        f"{into.cert}",
        "-keyout",
        f"{into.key}",
    ]
    for extension in (*extensions, "subjectAltName=IP:127.0.0.1"):
        command += ["-addext", extension]
    if signer:
        command += ["-CA", f"{signer.cert}", "-CAkey", f"{signer.key}"]
    subprocess.run(command, check=True, capture_output=True)
