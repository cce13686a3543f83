"""What a sandbox could leave behind on this machine, read from the kernel before and after."""

import ctypes
import os
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import anyio
import docker

from llm_sandbox_mcp.backends.containers.backend import LABEL
from tests import rings
from tests.engines import cluster, docker_host, podman_host
from tests.engines.places import CACHE, RUNTIME
from tests.growth import lasting

_PR_SET_CHILD_SUBREAPER = 36
_CGROUPS = "/sys/fs/cgroup"
_SHARED = ("/tmp", "/var/tmp", "/dev/shm", "/run", "/dev/mqueue")
_SANDBOX_UIDS = range(200_000, 300_000)
_POLL = 0.05
"""Seconds. Each check takes tens of milliseconds of processor time, which the awaited processes need as well."""
_ENGINES = (CACHE.name, "/run/runc", "/run/netns", "/containerd/", "/kubelet")
"""Parts of paths where engines on this machine mount what they need: engines of any tests, and other engines."""
_LAUNCHER, _MAPPER, _ZYGOTES_PARENT, _ZYGOTE = "launcher", "mapper", "bubblewrap of a zygote", "zygote"
DISK = "a-disk-of-its-own"
"""Part of the path where another test, at the same time, mounts a disk."""
_KEPT = (
    *(CACHE / "docker/containers", CACHE / "podman/overlay-containers", RUNTIME / "podman/overlay-containers"),
    *(RUNTIME / "docker/runtime-runc", RUNTIME / "docker/containerd/daemon/io.containerd.runtime.v2.task"),
    Path("/run/runc"),
)
"""In these folders, or one level below, engines and their runtimes have a folder for each container."""
_WITHOUT_ENGINES = (rings.CHECK, rings.SANDBOX)
"""Rings that need no engine: there, anyone may restart engines meanwhile."""
_CONTAINER = re.compile("[0-9a-f]{64}")
_POD = re.compile("/pod([0-9a-f-]{36})")

# Processes orphaned by a launcher are adopted by this process, and so stay visible as its descendants.
if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
    raise OSError(ctypes.get_errno(), "this process cannot become a subreaper")


@dataclass(frozen=True)
class System:
    """The state that must be the same afterwards."""

    processes: frozenset[str]
    """Descendants of this process, with their start time and command; processes of pods on this machine, as numbers."""
    cgroups: frozenset[str]
    """Control groups of servers and of their containers, which cannot be removed before their processes have ended. Not
    those of pods: their node removes empty groups at a time of its choice."""
    mounts: frozenset[str]
    files: frozenset[str]
    """Files in the folder of a server, except artifacts, which outlive sandboxes; files of the uids of sandboxes in
    folders that everyone can write; and what engines store about a container."""
    ipc: frozenset[str]
    """System V shared memory, queues and semaphores."""
    containers: frozenset[str]
    """Containers in the engines of the tests."""
    pods: frozenset[str]
    """Pods in the cluster of the tests, as numbers: warm pods may be replaced meanwhile."""

    def beyond(self, before: "System") -> dict[str, list[str]]:
        """Returns what exists here and did not exist before."""
        found = {
            field.name: sorted(getattr(self, field.name) - getattr(before, field.name)) for field in fields(System)
        }
        return {name: new for name, new in found.items() if new}


def look(runtime: Path) -> System:
    """Returns the current state; `runtime` contains the folders of servers, whose names their cgroups contain as well.

    Everything that is left of a container or pod is found if an earlier call has seen the container or pod itself.
    """
    if runtime.is_dir():
        _seen_servers.update(path.name for path in runtime.iterdir())
    # The connections to engines and the cluster stay open.
    with nullcontext() if rings.running in _WITHOUT_ENGINES else lasting():
        found, pods = frozenset(containers()), frozenset(_pods())
    return System(
        frozenset({*_descendants(), *_in_pods()}),
        frozenset(_cgroups()),
        frozenset(
            line
            for line in Path("/proc/self/mountinfo").read_text().splitlines()
            if _of_seen(line) or not any(place in line for place in (*_ENGINES, DISK))
        ),
        frozenset({*_server_files(str(runtime)), *_strange_files(), *_kept()}),
        frozenset(
            line for kind in ("shm", "msg", "sem") for line in Path(f"/proc/sysvipc/{kind}").read_text().splitlines()
        ),
        found,
        pods,
    )


async def nothing_beyond(before: System, look: Callable[[], System], seconds: float) -> None:
    """Waits until everything new is gone; fails with what still exists after so many seconds."""
    left = await beyond(before, look, seconds)
    assert not left, f"left behind after {seconds:g} s: {left}"


async def beyond(before: System, look: Callable[[], System], seconds: float) -> dict[str, list[str]]:
    """Waits until everything new is gone; returns what still exists after so many seconds.

    It polls, because the kernel does not report when the last trace of a process, a mount or a control group is gone.
    """
    left = look().beyond(before)
    with anyio.move_on_after(seconds):
        while left:
            await anyio.sleep(_POLL)
            left = look().beyond(before)
    return left


def _descendants() -> set[str]:
    # Many tests look twenty times a second, at all processes of the machine: only those that are ours are parsed.
    children: dict[bytes, list[tuple[bytes, bytes]]] = {}
    for entry in os.listdir(b"/proc"):
        if not entry.isdigit():
            continue
        try:
            file = os.open(b"/proc/%b/stat" % entry, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, ProcessLookupError):
            continue
        try:
            stat = os.read(file, 4096)
        except ProcessLookupError:
            continue
        finally:
            os.close(file)
        parent = stat[stat.rindex(b")") + len(") S ") :].partition(b" ")[0]
        children.setdefault(parent, []).append((entry, stat))
    found: set[str] = set()
    waiting = [(b"%d" % os.getpid(), "")]
    while waiting:
        pid, kind = waiting.pop()
        for child, stat in children.get(pid, ()):
            inner = _lasting(child, stat, kind)
            waiting.append((child, inner))
            if inner in ("", _LAUNCHER):
                found.add(_described(stat.decode(errors="replace")))
    return found


def _lasting(pid: bytes, stat: bytes, parent: str) -> str:
    """What kind of process of a launcher this is, by that of its parent; empty for all that ends with a sandbox.

    As long as there is a launcher, processes may wait for sandboxes to be forked from them, and one gives these uids.
    """
    if parent == _ZYGOTES_PARENT:
        return _ZYGOTE
    command = b""
    if b"(bwrap)" in stat or b"(python" in stat:
        with suppress(OSError), open(b"/proc/%b/cmdline" % pid, "rb") as file:
            command = file.read()
    if b"embedded.launcher" in command:
        return _MAPPER if parent == _LAUNCHER else _LAUNCHER
    return _ZYGOTES_PARENT if parent == _LAUNCHER and b"/opt/zygote.py" in command else ""


def _described(stat: str) -> str:
    """A process, without its state, which changes all the time, except that it is a zombie."""
    name, rest = stat[: stat.rindex(")") + 1], stat[stat.rindex(")") + 2 :].split()
    return f"{name} started {rest[19]}{' zombie' if rest[0] == 'Z' else ''}"


def _server_files(folder: str) -> Iterator[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name != "artifacts":
                yield entry.path
                if entry.is_dir(follow_symlinks=False):
                    yield from _server_files(entry.path)


_seen_servers: set[str] = set()
_seen_containers: set[str] = set()
_seen_pods: set[str] = set()


def _of_seen(text: str) -> bool:
    """Whether the text contains the id of a container that was seen."""
    return not _seen_containers.isdisjoint(_CONTAINER.findall(text))


def _cgroups() -> set[str]:
    ours = {f"llm-sandbox-mcp-{server}" for server in _seen_servers}
    return {
        folder for folder in _folders(_CGROUPS) if any(part in ours for part in folder.split("/")) or _of_seen(folder)
    }


def _folders(root: str) -> Iterator[str]:
    yield root
    # A folder has one link for each folder in it, and two of its own. To list the files in it takes ten times as long.
    with suppress(OSError):
        if os.stat(root).st_nlink != 2:
            with os.scandir(root) as entries:
                inside = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
            for folder in inside:
                if not folder.endswith("/kubepods"):
                    yield from _folders(folder)


def _in_pods() -> set[str]:
    """The processes of pods that were seen, if their node is this machine."""
    found = 0
    for entry in os.listdir("/proc") if _seen_pods else ():
        if entry.isdigit():
            try:
                groups = Path("/proc", entry, "cgroup").read_text()
            except OSError:  # the process has ended
                continue
            found += not _seen_pods.isdisjoint(_POD.findall(groups))
    return {f"process {number} of pods" for number in range(found)}


def _kept() -> set[str]:
    folders = [(place, name) for place in map(str, _KEPT) for name in _names(place)]
    folders += [(f"{place}/{folder}", name) for place, folder in folders for name in _names(f"{place}/{folder}")]
    return {f"{place}/{name}" for place, name in folders if _of_seen(name)}


def _names(folder: str) -> list[str]:
    """Returns the names in a folder; none if the folder is gone."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


@cache
def _engines() -> list[docker.APIClient]:
    """Clients of the tests' engines."""
    hosts = [host for host in (docker_host(), podman_host()) if host and rings.running not in _WITHOUT_ENGINES]
    return [docker.APIClient(base_url=host, version="1.41") for host in hosts]


def containers() -> set[str]:
    """Containers of servers that were seen, running or not. Later calls of `look` find what is left of them."""
    ours = [
        found
        for engine in _engines()
        for found in engine.containers(all=True, filters={"label": LABEL})
        if found["Labels"][LABEL] in _seen_servers
    ]
    _seen_containers.update(found["Id"] for found in ours)
    return {f"{found['Image']} {found['State']} {found['Id']}" for found in ours}


def _pods() -> set[str]:
    """Pods of servers that were seen."""
    api = cluster() if rings.running not in _WITHOUT_ENGINES else None
    listed = api.list_pod_for_all_namespaces(label_selector=LABEL).items if api else ()
    ours = [pod for pod in listed if pod.metadata.labels[LABEL] in _seen_servers]
    _seen_pods.update(pod.metadata.uid for pod in ours)
    return {f"pod {number}" for number in range(len(ours))}


def _strange_files() -> set[str]:
    found = set()
    for folder in _SHARED:
        if not os.path.isdir(folder):
            continue
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    if entry.stat(follow_symlinks=False).st_uid in _SANDBOX_UIDS:
                        found.add(entry.path)
                except FileNotFoundError:
                    continue
    return found
