"""What of this machine a sandbox could leave behind, read from the kernel before and after."""

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

import anyio

_PR_SET_CHILD_SUBREAPER = 36
_CGROUPS = "/sys/fs/cgroup"
_SHARED = ("/tmp", "/var/tmp", "/dev/shm", "/run", "/dev/mqueue")
_SANDBOX_UIDS = range(200_000, 300_000)
_POLL = 0.01

# Whatever a launcher lets go of comes to this process and stays visible as its descendant.
if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
    raise OSError(ctypes.get_errno(), "this process cannot become a subreaper")


@dataclass(frozen=True)
class System:
    """The state that must be the same again."""

    processes: frozenset[str]
    """Descendants of this process, with their state and command."""
    cgroups: frozenset[str]
    mounts: frozenset[str]
    files: frozenset[str]
    """Below a server's folder, without the artifacts, which outlive sandboxes, and those of sandboxes' uids in the folders that everyone can write."""
    ipc: frozenset[str]
    """System V shared memory, queues and semaphores."""

    def beyond(self, before: "System") -> dict[str, list[str]]:
        """What is here and was not there before."""
        found = {
            field.name: sorted(getattr(self, field.name) - getattr(before, field.name)) for field in fields(System)
        }
        return {name: new for name, new in found.items() if new}


def look(runtime: Path) -> System:
    """The state now; `runtime` is where servers keep their folders, whose names are also those of their cgroups."""
    return System(
        frozenset(_descendants()),
        frozenset(_cgroups(runtime)),
        frozenset(Path("/proc/self/mountinfo").read_text().splitlines()),
        frozenset({*_server_files(runtime), *_strange_files()}),
        frozenset(
            line for kind in ("shm", "msg", "sem") for line in Path(f"/proc/sysvipc/{kind}").read_text().splitlines()
        ),
    )


async def nothing_beyond(before: System, look: Callable[[], System], seconds: float) -> None:
    """Waits until nothing is left that was not there before; fails with what is still there in the end.

    The kernel tells nobody when the last trace of a process, a mount or a control group is gone, hence the polling.
    """
    with anyio.move_on_after(seconds):
        while look().beyond(before):
            await anyio.sleep(_POLL)
    left = look().beyond(before)
    assert not left, f"left behind after {seconds:g} s: {left}"


def _descendants() -> set[str]:
    children: dict[int, list[tuple[int, str]]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = Path(f"/proc/{entry}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        name, rest = stat[: stat.rindex(")") + 1], stat[stat.rindex(")") + 2 :].split()
        # Without the state, which changes all the time, except for zombies.
        zombie = " zombie" if rest[0] == "Z" else ""
        children.setdefault(int(rest[1]), []).append((int(entry), f"{name} started {rest[19]}{zombie}"))
    found: set[str] = set()
    waiting = [os.getpid()]
    while waiting:
        for pid, text in children.get(waiting.pop(), ()):
            found.add(text)
            waiting.append(pid)
    return found


def _server_files(runtime: Path) -> set[str]:
    return {str(path) for path in runtime.rglob("*") if "artifacts" not in path.relative_to(runtime).parts}


_seen_servers: set[str] = set()


def _cgroups(runtime: Path) -> set[str]:
    if runtime.is_dir():
        _seen_servers.update(path.name for path in runtime.iterdir())
    ours = {f"llm-sandbox-mcp-{server}" for server in _seen_servers}
    return {folder for folder, _, _ in os.walk(_CGROUPS) if any(part in ours for part in folder.split("/"))}


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
