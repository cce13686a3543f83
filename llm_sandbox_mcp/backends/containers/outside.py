"""The view of a container from its own machine, without running anything inside: its counters and its folders."""

import errno
import os
import signal
import socket
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import anyio

from ...host import programs
from ..base import Usage
from ..counters import Counters
from ..listening import port_refused
from ..scanning import Folders

_ANSWER = 16
"""Maximum bytes of an answer, which is a number."""
_BUFFERS = "memory.kmem.tcp.limit_in_bytes"
"""The limit for the buffers of all sockets, not only TCP; cgroup v2 counts them as memory."""
_LATE = 3.0
"""Seconds that a removal has, which takes a tenth of one."""
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(slots=True)
class Outside:
    """The view of one container."""

    counters: Counters
    folders: Folders
    network: int
    """A descriptor of its network namespace."""
    first: int
    """A descriptor of its first process; -1 if this kernel has none for processes."""

    def usage(self) -> Usage:
        """The limits that were hit, and the processor time that was used; raises OSError if the container is gone."""
        return Usage(self.counters.oom_kills(), self.counters.pids_refused(), self.counters.cpu())

    async def listen(self, port: int) -> socket.socket | None:
        """A socket that listens on the container's own loopback; None if this process cannot enter its network.

        It listens on this port, or on any free port for 0; raises `ListeningFailed` if the port is in use.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs, suppress(OSError):  # if the machine cannot start another process
                passed = (self.network, theirs.fileno())
                await anyio.run_process(
                    programs.command(f"{__package__}.entering", *passed, port),
                    stdin=subprocess.DEVNULL,
                    stderr=None,
                    check=False,
                    env=programs.ENVIRONMENT,
                    cwd=programs.FOLDER,
                    pass_fds=passed,
                )
            answer, descriptors, _, _ = socket.recv_fds(ours, _ANSWER, 1)
        if descriptors:
            return socket.socket(fileno=descriptors[0])
        if answer == b"%d" % errno.EADDRINUSE:
            raise port_refused(port, errno.EADDRINUSE)
        return None

    async def kill_later(self) -> None:
        """Ends all processes of the container after some seconds."""
        await anyio.sleep(_LATE)
        self.kill()

    def kill(self) -> None:
        """Ends all processes of the container."""
        with suppress(OSError):  # it is gone, or is another user's
            signal.pidfd_send_signal(self.first, signal.SIGKILL)

    def release(self) -> None:
        """Closes the descriptor of the first process."""
        if self.first >= 0:
            os.close(self.first)

    async def close(self) -> None:
        """Closes the view but for the first process; otherwise the engine could not unmount the folders."""
        self.counters.close()
        os.close(self.network)
        await self.folders.close()


def look(
    pid: int, container: str, folders: Iterable[str], memory: int, closing: anyio.CapacityLimiter
) -> Outside | None:
    """The view of a container by its first process; None if it runs on another machine, or may not be inspected.

    Call it before any code runs: later, a folder could have been replaced by a link. With cgroup v1, it also limits
    socket buffers to the container's memory, since they are counted separately and engines do not limit them.
    """
    opened: list[int] = []
    try:
        with open(f"/proc/{pid}/cgroup", encoding="ascii") as file:
            # Before the file is read, which fails if the id no longer belongs to the process whose file was opened.
            if (first := _descriptor(pid)) >= 0:
                opened.append(first)
            groups = [line.rstrip("\n").split(":", 2) for line in file]
        if not any(container in path for _, _, path in groups):
            raise ProcessLookupError
        opened.append(network := os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC))
        for folder in folders:
            opened.append(os.open(f"/proc/{pid}/root{folder}", _OPEN))
        version, places = _places(groups)
        if version == 1:
            _bound_buffers(places["memory"], memory)
        return Outside(Counters(version, places), Folders(opened[opened.index(network) + 1 :], closing), network, first)
    except (OSError, KeyError):  # gone, not readable, or in cgroups that are not mounted here
        for descriptor in opened:
            os.close(descriptor)
        return None


def _descriptor(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except OSError:  # older than Linux 5.3
        return -1


def _bound_buffers(place: str, memory: int) -> None:
    with suppress(OSError), open(f"{place}/{_BUFFERS}", "wb", buffering=0) as file:  # if it is not writable
        file.write(b"%d" % memory)


def _places(groups: list[list[str]]) -> tuple[int, dict[str, str]]:
    """The cgroup version, and the folders of the container's controllers as mounted here."""
    mounts: dict[str, str] = {}
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            place, _, rest = line.partition(" - ")
            kind, _, options = rest.split(" ", 2)
            if kind in ("cgroup", "cgroup2"):
                for name in options.rstrip("\n").rsplit(" ", 1)[-1].split(",") if kind == "cgroup" else ("",):
                    mounts[name] = place.split(" ")[4]
    found = {name: mounts[name] + path for _, names, path in groups for name in names.split(",") if name in mounts}
    wanted = ("memory", "pids", "cpuacct")
    version = 1 if "memory" in found else 2
    return version, {name: found[name if version == 1 else ""] for name in wanted if version == 2 or name in found}
