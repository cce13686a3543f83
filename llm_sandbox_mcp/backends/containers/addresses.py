"""Where engines are: found as their own tools find them, from the profile and from the server's environment alone.

The packages `docker` and `podman` look into this process's environment instead, and stumble over settings that their
tools accept. https://docs.docker.com/engine/manage-resources/contexts/, containers.conf(5).
"""

import hashlib
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ...errors import EngineUnavailable

_DOCKER = "/var/run/docker.sock"
_PODMAN = "/run/podman/podman.sock"


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files for TLS; empty names are left out."""

    ca: str = ""
    cert: str = ""
    key: str = ""
    verify: bool = True


@dataclass(frozen=True, slots=True)
class Address:
    """Where an engine listens: `unix://` and a path, or `tcp://`, a host and a port."""

    url: str
    certificates: Certificates | None = None


def docker_address(settings: Mapping[str, Any], environ: Mapping[str, str]) -> Address:
    """The profile's host or context, else DOCKER_HOST, DOCKER_CONTEXT, the current context, a usual socket."""
    folder = Path(environ.get("DOCKER_CONFIG") or Path(environ.get("HOME", "/nonexistent"), ".docker"))
    if settings["host"]:
        named = Certificates(settings["ca"], settings["cert"], settings["key"])
        secured = named != Certificates() or settings["host"].startswith("https:")
        return _address("docker", settings["host"], named if secured else None)
    if not settings["context"] and environ.get("DOCKER_HOST"):
        return _address("docker", environ["DOCKER_HOST"], _certificates(environ, folder))
    context = (
        settings["context"] or environ.get("DOCKER_CONTEXT") or _read(folder / "config.json").get("currentContext")
    )
    if context and context != "default":
        return _context(folder, str(context))
    own = [os.path.join(environ[name], "docker.sock") for name in ("XDG_RUNTIME_DIR",) if environ.get(name)]
    return Address(f"unix://{_first_there(_DOCKER, *own, str(folder / 'run/docker.sock'))}")


def podman_address(settings: Mapping[str, Any], environ: Mapping[str, str]) -> Address:
    """The profile's host, else CONTAINER_HOST, CONTAINER_CONNECTION, the default connection, a usual socket."""
    if host := settings["host"] or environ.get("CONTAINER_HOST"):
        return _address("podman", host, None)
    folder = Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME", "/nonexistent"), ".config"), "containers")
    connection = _read(Path(environ.get("PODMAN_CONNECTIONS_CONF") or folder / "podman-connections.json"))
    connection = connection.get("Connection") or {}
    engine = _read(Path(environ.get("CONTAINERS_CONF") or folder / "containers.conf")).get("engine") or {}
    known = {**(engine.get("service_destinations") or {}), **(connection.get("Connections") or {})}
    name = environ.get("CONTAINER_CONNECTION") or connection.get("Default") or engine.get("active_service")
    if name:
        found = {key.lower(): value for key, value in (known.get(name) or {}).items()}
        if "uri" not in found:
            raise EngineUnavailable(f"podman has no connection {name}; `podman system connection list` lists them")
        return _address("podman", str(found["uri"]), None)
    own = f"{environ.get('XDG_RUNTIME_DIR') or f'/run/user/{os.geteuid()}'}/podman/podman.sock"
    return Address(f"unix://{_first_there(*((_PODMAN, own) if os.geteuid() == 0 else (own, _PODMAN)))}")


def _address(engine: str, url: str, certificates: Certificates | None) -> Address:
    """The same in one form; `EngineUnavailable` for a kind that has no raw streams here."""
    if "://" not in url:
        url = f"tcp://{url}"
    try:
        place = urlsplit(url)
        port = place.port
    except ValueError as error:
        raise EngineUnavailable(f"{engine}'s address {url} is wrong: {error}; such as tcp://10.0.0.5:2376") from error
    match place.scheme:
        case "unix" | "http+unix":
            return Address(f"unix://{place.path}")
        case "tcp" | "http" | "https" if place.hostname:
            return Address(f"tcp://{place.netloc}{'' if port else ':2376' if certificates else ':2375'}", certificates)
        case "ssh":
            raise EngineUnavailable(
                f"{engine} at {url} is reached over ssh, which has no raw streams here; "
                f"forward its socket (ssh -L) and name that in {engine}.host of the profile"
            )
    raise EngineUnavailable(
        f"{engine}'s address {url} is of no known kind; such as unix:///run/x.sock, tcp://host:port"
    )


def _certificates(environ: Mapping[str, str], folder: Path) -> Certificates | None:
    verify = bool(environ.get("DOCKER_TLS_VERIFY"))
    if not verify and not environ.get("DOCKER_TLS"):
        return None
    place = environ.get("DOCKER_CERT_PATH") or str(folder)
    ca, cert, key = (os.path.join(place, f"{name}.pem") for name in ("ca", "cert", "key"))
    return Certificates(ca, cert, key, verify)


def _context(folder: Path, name: str) -> Address:
    key = hashlib.sha256(name.encode()).hexdigest()
    endpoint = (_read(folder / "contexts/meta" / key / "meta.json").get("Endpoints") or {}).get("docker") or {}
    if not endpoint.get("Host"):
        raise EngineUnavailable(f"docker has no context {name} in {folder}; `docker context ls` lists them")
    files = folder / "contexts/tls" / key / "docker"
    pems = [files / f"{part}.pem" for part in ("ca", "cert", "key")]
    there = [str(path) if path.is_file() else "" for path in pems]
    return _address(
        "docker",
        str(endpoint["Host"]),
        Certificates(there[0], there[1], there[2], not endpoint.get("SkipTLSVerify")) if any(there) else None,
    )


def _read(path: Path) -> dict[str, Any]:
    """What a settings file says; nothing where there is none."""
    try:
        text = path.read_text(encoding="utf-8")
        found = tomllib.loads(text) if path.suffix == ".conf" else json.loads(text)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise EngineUnavailable(f"{path} cannot be read: {error}; fix it, or name the engine in the profile") from error
    return found if isinstance(found, dict) else {}


def _first_there(*paths: str) -> str:
    return next((path for path in paths if os.path.exists(path)), paths[0])
