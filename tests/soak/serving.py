"""The server under soak, in a separate process with few descriptors, and its resource usage."""

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import docker
from mcp import Client

from llm_sandbox_mcp.backends.containers.backend import LABEL
from llm_sandbox_mcp.backends.embedded.cgroup_detect import detect
from llm_sandbox_mcp.backends.embedded.cgroups import PREFIX
from llm_sandbox_mcp.cli.toml import as_toml
from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.profile.sections import LanguageSection
from tests.engines import MIB, cluster, docker_host, has_image, host_folder, podman_host, small_profile
from tests.growth import lasting
from tests.handlers.serving import LANGUAGES, missing
from tests.local_index import local_index, wheel

from .jobs import LIBRARY

DESCRIPTORS = 256
"""How many descriptors the server may have open."""
_SERVE = ["sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh", sys.executable, "-m", "llm_sandbox_mcp", "serve"]
_END = 60.0


@dataclass(frozen=True)
class Server:
    """A server process that listens."""

    process: subprocess.Popen[bytes]
    url: str
    backend: str
    runtime: Path
    temporary: Path

    def connect(self) -> Client:
        return Client(f"{self.url}/mcp", mode="2026-07-28")

    def memory(self) -> dict[str, int]:
        """Bytes of memory of the server itself, and of the processes that start its sandboxes."""
        launchers = [pid for pid in self._below() if "launcher" in _read(pid, "cmdline")]
        return {"server": _resident(self.process.pid), "launcher": sum(map(_resident, launchers))}

    def counts(self) -> Mapping[str, int]:
        """How many descriptors, threads, processes, cgroups, containers and files the server has."""
        below, pid = self._below(), self.process.pid
        runtimes = [path.name for path in self.runtime.iterdir()]
        # The connections to the engines stay open.
        with lasting():
            containers = sum(_containers(self.backend, name) for name in runtimes)
        return {
            "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
            "threads": len(os.listdir(f"/proc/{pid}/task")),
            "processes": len(below),
            "groups": sum(_groups(name) for name in runtimes),
            "containers": containers,
            "files": sum(1 for path in self._files()),
        }

    def _files(self) -> Iterator[Path]:
        """The files in its folders; without artifacts, which outlive sandboxes up to a limit in bytes."""
        yield from (path for path in self.runtime.rglob("*") if "artifacts" not in path.parts)
        yield from self.temporary.rglob("*")

    def _below(self) -> list[int]:
        found = [self.process.pid]
        for pid in found:
            for thread in _names(f"/proc/{pid}/task"):
                found += map(int, _read(pid, f"task/{thread}/children").split())
        return found[1:]


def available(backend: str) -> list[str]:
    """The languages other than Python that a backend can run here."""
    others = [name for name in LANGUAGES if name != "python" and has_image(backend, name)]
    return [name for name in others if not missing(LANGUAGES[name], libraries=False)]


@contextmanager
def served(backend: str) -> Iterator[Server]:
    """A server with small limits, an index of one library, and sessions that expire soon."""
    with host_folder() as folder, local_index() as index:
        index.add_project(LIBRARY, wheel(LIBRARY), index)
        # On Kubernetes users may wait long for another pod, and a session must not expire meanwhile.
        idle = 60.0 if backend == "kubernetes" else 20.0
        profile = small_profile(
            backend,
            folder,
            sessions={"max": 12, "idle_timeout": idle, "starts_per_second": 1000.0},
            pool={"min": 1, "languages": ("python",)},
            # A busy machine may take long to answer an interrupt, and a soak does not measure how long.
            limits={"memory": 512 * MIB, "cpus": 2.0, "disk": 64 * MIB, "grace": 20.0},
        )
        profile = profile.model_copy(update={"languages": {"python": LanguageSection(index=f"{index.url}/simple/")}})
        with _process(profile, folder) as server:
            yield server


@contextmanager
def _process(profile: Profile, folder: Path) -> Iterator[Server]:
    """A server that keeps everything in the folder; it must end by itself on SIGTERM."""
    temporary = folder / "temporary"
    temporary.mkdir()
    file = folder / "profile.toml"
    file.write_text(as_toml(profile))
    command = [*_SERVE, "--transport", "http", "--port", "0", "--profile", str(file)]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment) as process,
    ):
        assert process.stderr
        line = process.stderr.readline()
        reader = threading.Thread(target=shutil.copyfileobj, args=(process.stderr, log))
        reader.start()
        try:
            found = re.search(r"listening on (http://[\d.]+:\d+)/mcp", line.decode())
            assert found, line
            yield Server(process, found[1], profile.backend.name, folder / "runtime", temporary)
            process.terminate()
            assert process.wait(_END) == 0
        finally:
            process.kill()
            reader.join()


def _groups(server: str) -> int:
    """How many cgroups the sandboxes of a server have."""
    return sum(
        entry.is_dir()
        for base in _bases()
        for place in [f"{base}/{PREFIX}{server}"]
        if os.path.isdir(place)
        for entry in os.scandir(place)
    )


@cache
def _bases() -> Sequence[str]:
    return sorted(set(detect().bases.values()))


def _containers(backend: str, server: str) -> int:
    """How many containers or pods of a server an engine has."""
    if backend == "kubernetes":
        return len(cluster().list_pod_for_all_namespaces(label_selector=f"{LABEL}={server}").items)
    if backend in ("docker", "podman"):
        return len(_engine(backend).containers(all=True, filters={"label": f"{LABEL}={server}"}))
    return 0


@cache
def _engine(backend: str) -> docker.APIClient:
    return docker.APIClient(base_url=docker_host() if backend == "docker" else podman_host(), version="1.41")


def _resident(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", _read(pid, "status"))
    return int(found[1]) << 10 if found else 0


def _read(pid: int, name: str) -> str:
    """The text of a file in /proc of a process; empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, ProcessLookupError):
        return []
