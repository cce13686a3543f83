"""A process of the launcher's that a sandbox consists of, or that sandboxes are forks of."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import stat
from dataclasses import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from .cgroup import Group

_LOG_BYTES = 2000
_PIPE = 1 << 20
"""Bytes that a pipe holds at most."""


@dataclass(slots=True)
class Child:
    """A sandbox, or a zygote, from its start until its control group is gone."""

    pid: int
    """0 if it is a fork of a zygote."""
    log: int
    group: Group | None
    pidfd: int = -1
    """For a fork of a zygote, as soon as there is one."""
    uid: int | None = None
    mapping: int = -1
    """For a fork until it has its uid: the socket through which it is told so."""
    layer: str = ""
    """The id of the fork whose files it starts with; empty if it starts with empty folders."""
    running: bool = True
    ending: bool = False
    """Whether the launcher has ended it, which also ends its network, in any order."""
    network: int = 0
    """The process that opens its network, or 0."""
    counts: Mapping[str, int | float | None] = field(default_factory=lambda: counts(None))
    """How often it ran into its limits, when that was last read."""

    def end(self) -> None:
        """Kills all its processes."""
        self.ending = True
        if self.running and self.pidfd >= 0:
            # It has ended; or a module that answers in place of its zygote gave another descriptor.
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        elif self.running and self.pid:
            # The whole process group: a process that it has just started and that waits for it would wait forever.
            os.killpg(self.pid, signal.SIGKILL)
        if self.group is not None:
            self.group.kill()

    def close(self) -> None:
        """Closes what the launcher has open for it."""
        for descriptor in (self.log, self.pidfd, self.mapping):
            if descriptor >= 0:
                os.close(descriptor)

    def tail(self) -> str:
        """The last of what it has written to its log."""
        if not stat.S_ISREG(os.fstat(self.log).st_mode):
            with contextlib.suppress(BlockingIOError):
                return os.read(self.log, _PIPE)[-_LOG_BYTES:].decode(errors="replace").strip()
            return ""
        size = os.fstat(self.log).st_size
        return os.pread(self.log, _LOG_BYTES, max(0, size - _LOG_BYTES)).decode(errors="replace").strip()


def counts(group: Group | None) -> dict[str, int | float | None]:
    """How often the processes in a group ran into its limits."""
    if group is None:
        return {"oom_kills": 0, "pids_refused": 0, "cpu": None}
    return {"oom_kills": group.oom_kills(), "pids_refused": group.pids_refused(), "cpu": group.cpu_usage()}


def has_ended(pidfd: int) -> bool:
    """Whether the process that a descriptor stands for has ended."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))
