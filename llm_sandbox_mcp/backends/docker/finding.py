"""Finds where Docker is: from the profile, else from the settings that Docker's own tools use."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from ...base.errors import EngineUnavailable
from ..containers.addresses import Address, Certificates, address, first_there, read_settings
from .settings import Docker

_SOCKET = "/var/run/docker.sock"


def docker_address(settings: Docker, environ: Mapping[str, str]) -> Address:
    """The profile's host or context, else DOCKER_HOST, DOCKER_CONTEXT, the current context, a usual socket.

    The profile's certificates replace all others.
    """
    folder = Path(environ.get("DOCKER_CONFIG") or Path(environ.get("HOME", "/nonexistent"), ".docker"))
    named = Certificates(settings.ca, settings.cert, settings.key)
    own = named if named != Certificates() else None
    if host := settings.host or ("" if settings.context else environ.get("DOCKER_HOST", "")):
        public = Certificates() if host.startswith("https:") else None
        return address("docker", host, own or _certificates(environ, folder) or public)
    context = (
        settings.context or environ.get("DOCKER_CONTEXT") or read_settings(folder / "config.json").get("currentContext")
    )
    if context and context != "default":
        return _context(folder, str(context), own)
    sockets = [os.path.join(environ[name], "docker.sock") for name in ("XDG_RUNTIME_DIR",) if environ.get(name)]
    return Address(f"unix://{first_there(_SOCKET, *sockets, str(folder / 'run/docker.sock'))}")


def _certificates(environ: Mapping[str, str], folder: Path) -> Certificates | None:
    """Those that Docker's own tools use for any host, with the files that they can do without."""
    verify = bool(environ.get("DOCKER_TLS_VERIFY"))
    if not verify and not environ.get("DOCKER_TLS"):
        return None
    place = environ.get("DOCKER_CERT_PATH") or str(folder)
    ca, cert, key = (os.path.join(place, f"{name}.pem") for name in ("ca", "cert", "key"))
    pair = (cert, key) if os.path.exists(cert) else ("", "")
    return Certificates(ca if verify else "", *pair, verify)


def _context(folder: Path, name: str, own: Certificates | None) -> Address:
    key = hashlib.sha256(name.encode()).hexdigest()
    endpoint = (read_settings(folder / "contexts/meta" / key / "meta.json").get("Endpoints") or {}).get("docker") or {}
    if not endpoint.get("Host"):
        raise EngineUnavailable(
            f"docker has no context {name} in {folder}", "run `docker context ls` to list the contexts"
        )
    files = folder / "contexts/tls" / key / "docker"
    pems = [files / f"{part}.pem" for part in ("ca", "cert", "key")]
    there = [str(path) if path.is_file() else "" for path in pems]
    stored = Certificates(there[0], there[1], there[2], not endpoint.get("SkipTLSVerify")) if any(there) else None
    return address("docker", str(endpoint["Host"]), own or stored)
