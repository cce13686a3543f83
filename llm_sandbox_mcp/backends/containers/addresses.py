"""Where engines are: found as their own tools find them, from the profile and from the server's environment alone.

The packages `docker` and `podman` look into this process's environment instead, and stumble over settings that their
tools accept. https://docs.docker.com/engine/manage-resources/contexts/, containers.conf(5).
"""

import json
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ...errors import EngineUnavailable


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


def read_settings(path: Path) -> dict[str, Any]:
    """What a settings file says; nothing where there is none."""
    try:
        text = path.read_text(encoding="utf-8")
        found = tomllib.loads(text) if path.suffix == ".conf" else json.loads(text)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise EngineUnavailable(f"{path} cannot be read: {error}; fix it, or name the engine in the profile") from error
    return found if isinstance(found, dict) else {}


def first_there(*paths: str) -> str:
    """The first of the paths at which there is something, else the first."""
    return next((path for path in paths if os.path.exists(path)), paths[0])
