"""Finds where Podman's service is: from the profile, else from the settings that Podman's own tools use."""

import os
from collections.abc import Mapping
from pathlib import Path

from ...base.errors import EngineUnavailable
from ..containers.addresses import Address, address, first_there, read_settings
from .settings import Podman

_SOCKET = "/run/podman/podman.sock"


def podman_address(settings: Podman, environ: Mapping[str, str]) -> Address:
    """The profile's host, else CONTAINER_HOST, CONTAINER_CONNECTION, the default connection, a usual socket."""
    if host := settings.host or environ.get("CONTAINER_HOST"):
        return address("podman", host, None)
    folder = Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME", "/nonexistent"), ".config"), "containers")
    connection = read_settings(Path(environ.get("PODMAN_CONNECTIONS_CONF") or folder / "podman-connections.json"))
    connection = connection.get("Connection") or {}
    engine = read_settings(Path(environ.get("CONTAINERS_CONF") or folder / "containers.conf")).get("engine") or {}
    known = {**(engine.get("service_destinations") or {}), **(connection.get("Connections") or {})}
    name = environ.get("CONTAINER_CONNECTION") or connection.get("Default") or engine.get("active_service")
    if name:
        found = {key.lower(): value for key, value in (known.get(name) or {}).items()}
        if "uri" not in found:
            raise EngineUnavailable(
                f"podman has no connection {name}", "run `podman system connection list` to list the connections"
            )
        return address("podman", str(found["uri"]), None)
    own = f"{environ.get('XDG_RUNTIME_DIR') or f'/run/user/{os.geteuid()}'}/podman/podman.sock"
    return Address(f"unix://{first_there(*((_SOCKET, own) if os.geteuid() == 0 else (own, _SOCKET)))}")
