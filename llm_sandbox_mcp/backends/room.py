"""What bounds how many sandboxes there can be at once, beside the profile: what this machine has of what they take."""

import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path

_OWN_FILES = 32
"""Open files of a server that has no sandbox and no client; 25 and a few more were counted."""
_CONNECTIONS = 32
"""Connections of clients that a server may have at the least."""
_FILES_FOR_EACH = 8
"""Where more files may be open, there is a connection for each of so many."""
_FILES = 16
"""Open files of the server for each sandbox with one live kernel that runs code."""
_PROCESSES = 16
"""Processes and threads of a sandbox with one live kernel: Node has most."""
_MEMORY = 32 << 20
"""Bytes that a sandbox with one live kernel takes at the least."""


@dataclass(frozen=True, slots=True)
class Room:
    """How many sandboxes fit, by one of the things that they take, each taking as much as one that does little."""

    of: str
    sandboxes: int
    step: str
    """What makes room for more."""


def open_files() -> Room:
    """By the open files of this process."""
    most, hard = _limits_of_files()
    step = f"ulimit -n {hard}" if most < hard else f"raise the hard limit of open files, which is {hard}"
    return Room("open files", max(0, most - _OWN_FILES - connections()) // _FILES, step)


def connections() -> int:
    """How many connections of clients a server may have at once and still open the files that its sandboxes need."""
    return max(_CONNECTIONS, _limits_of_files()[0] // _FILES_FOR_EACH)


def _limits_of_files() -> tuple[int, int]:
    """The soft limit and the hard one."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (sys.maxsize if limit == resource.RLIM_INFINITY else limit for limit in limits)
    return soft, hard


def processes(proc: Path = Path("/proc")) -> Room:
    """By the processes and threads that the kernel, and this user, may have."""
    kernel = min(int((proc / "sys/kernel" / name).read_text()) for name in ("pid_max", "threads-max"))
    own, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if os.geteuid() != 0 and own != resource.RLIM_INFINITY and own < kernel:
        return Room("processes", own // _PROCESSES, f"raise the limit of this user's processes, which is {own}")
    return Room("processes", kernel // _PROCESSES, "sysctl kernel.pid_max and kernel.threads-max")


def memory(proc: Path = Path("/proc")) -> Room:
    """By the memory of the machine."""
    line = next(line for line in (proc / "meminfo").read_text().splitlines() if line.startswith("MemTotal:"))
    total = int(line.split()[1]) << 10
    return Room("memory", total // _MEMORY, "a machine with more, or an engine on several, such as Kubernetes")
