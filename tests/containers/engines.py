"""The tests' own engines, profiles of servers on them, and the containers of these servers."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import anyio
import anyio.to_thread
import docker
from docker.errors import APIError, NotFound

from llm_sandbox_mcp.backends.containers.backend import LABEL
from tests.engines import docker_host, plain_handlers, podman_host

ENGINES = ("docker", "podman")
_POLL = 0.05


def address(engine: str) -> str:
    found = docker_host() if engine == "docker" else podman_host()
    assert found is not None
    return found


def client(host: str) -> docker.APIClient:
    """A client of an engine; Podman has Docker's API too."""
    return docker.APIClient(base_url=host, version="1.41", timeout=30)


def profile_file(engine: str, host: str, folder: Path, *, containers: Mapping[str, object] | None = None) -> Path:
    """Writes a profile for a server process that keeps everything below the folder."""
    sections: Mapping[str, Mapping[str, object]] = {
        "backend": {"name": engine},
        "server": {"runtime": str(folder / "runtime"), "cache": str(folder / "cache")},
        "handlers": {"folders": [str(plain_handlers(folder / "handlers"))]},
        "limits": {"memory": "128MiB", "disk": "16MiB", "cpus": 1.0, "pids": 64},
        "pool": {"min": 0},
        "containers": containers or {},
        engine: {"host": host},
    }
    lines = [
        line
        for name, section in sections.items()
        for line in (f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in section.items()))
    ]
    path = folder / "profile.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def _toml(value: object) -> str:
    """A value as TOML, on one line."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key} = {_toml(item)}' for key, item in value.items())}}}"
    return json.dumps(value)


async def until(condition: Callable[[], bool], seconds: float) -> None:
    """Waits until a condition is true. It polls, because nothing reports when a container or its processes are gone."""
    with anyio.fail_after(seconds):
        while not await anyio.to_thread.run_sync(condition):
            await anyio.sleep(_POLL)


class Watched:
    """The containers of all servers whose folders are or were below one folder."""

    def __init__(self, host: str, runtime: Path) -> None:
        self._client = client(host)
        self._runtime = runtime
        self._servers: set[str] = set()

    def now(self) -> set[str]:
        """The ids of these containers, in any state."""
        if self._runtime.is_dir():
            self._servers.update(path.name for path in self._runtime.iterdir())
        listed = self._client.containers(all=True, filters={"label": LABEL})
        ours = (str(found["Id"]) for found in listed if found["Labels"][LABEL] in self._servers)
        there = {container for container in ours if self._is_there(container)}
        self._client.close()  # otherwise it keeps one connection for each container
        return there

    def _is_there(self, container: str) -> bool:
        """Whether a container exists. Docker 20.10 still lists one that it removed by itself while the container
        started."""
        try:
            self._client.inspect_container(container)
        except NotFound:
            return False
        except APIError:  # from Podman, for a container that it is about to remove
            return True
        return True
