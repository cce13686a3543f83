"""The addresses of engines, found as their own tools find them, but only from the profile and the server's environment.

The packages `docker` and `podman` read this process's environment instead, and fail on settings that the engines'
tools accept. https://docs.docker.com/engine/manage-resources/contexts/, containers.conf(5).
"""

import json
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ...base.errors import EngineUnavailable


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


def address(engine: str, url: str, certificates: Certificates | None) -> Address:
    """Converts an address to one form; raises `EngineUnavailable` for a kind of address that is not supported."""
    if "://" not in url:
        url = f"tcp://{url}"
    try:
        place = urlsplit(url)
        port = place.port
    except ValueError as error:
        raise EngineUnavailable(
            f"{engine}'s address {url} is not valid: {error}", "use an address such as tcp://10.0.0.5:2376"
        ) from error
    match place.scheme:
        case "unix" | "http+unix":
            return Address(f"unix://{place.path}")
        case "tcp" | "http" | "https" if place.hostname:
            return Address(f"tcp://{place.netloc}{'' if port else ':2376' if certificates else ':2375'}", certificates)
        case "ssh":
            raise EngineUnavailable(
                f"{engine}'s address {url} uses ssh, which is not supported",
                f"forward its socket with ssh -L, and name the forwarded socket in {engine}.host of the profile",
            )
    raise EngineUnavailable(
        f"{engine}'s address {url} is of an unknown kind", "use unix:///run/x.sock or tcp://host:port"
    )


def read_settings(path: Path) -> dict[str, Any]:
    """The content of a settings file; empty if the file does not exist."""
    try:
        text = path.read_text(encoding="utf-8")
        found = tomllib.loads(text) if path.suffix == ".conf" else json.loads(text)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise EngineUnavailable(
            f"{path} cannot be read: {error}", "fix the file, or name the engine's address in the profile"
        ) from error
    return found if isinstance(found, dict) else {}


def first_there(*paths: str) -> str:
    """The first of the paths that exists; the first path if none exists."""
    return next((path for path in paths if os.path.exists(path)), paths[0])
