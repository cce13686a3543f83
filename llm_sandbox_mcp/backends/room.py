"""How many sandboxes this machine has resources for; this bounds their number at once in addition to the profile."""

import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path

_OWN_FILES = 32
"""Open files of a server that has no sandbox and no client; a little over 25 were counted."""
_CONNECTIONS = 32
"""The least number of client connections that a server can have."""
_FILES_FOR_EACH = 8
"""One client connection is allowed for each so many open files, if that is more than `_CONNECTIONS`."""
_FILES = 16
"""Open files of the server for each sandbox with one live kernel that runs code."""
_PROCESSES = 16
"""Processes and threads of a sandbox with one live kernel; Node needs the most."""
_MEMORY = 32 << 20
"""The least bytes of memory that a sandbox with one live kernel takes."""


@dataclass(frozen=True, slots=True)
class Room:
    """How many sandboxes fit by one resource, if each takes as much as a sandbox that does little."""

    of: str
    sandboxes: int
    step: str
    """How to make room for more."""


def open_files(each: int = _FILES) -> Room:
    """The room given by the limit on open files of this process; `each` is how many a sandbox takes."""
    most, hard = _limits_of_files()
    step = f"ulimit -n {hard}" if most < hard else f"raise the hard limit of open files, which is {hard}"
    return Room("open files", max(0, most - _OWN_FILES - connections()) // each, step)


def connections() -> int:
    """How many client connections a server can have at once and still open the files that its sandboxes need."""
    return max(_CONNECTIONS, _limits_of_files()[0] // _FILES_FOR_EACH)


def _limits_of_files() -> tuple[int, int]:
    """The soft limit and the hard one."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (sys.maxsize if limit == resource.RLIM_INFINITY else limit for limit in limits)
    return soft, hard


def processes(proc: Path = Path("/proc")) -> Room:
    """The room given by the kernel's and this user's limits on processes and threads."""
    kernel = min(int((proc / "sys/kernel" / name).read_text()) for name in ("pid_max", "threads-max"))
    own, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if os.geteuid() != 0 and own != resource.RLIM_INFINITY and own < kernel:
        return Room("processes", own // _PROCESSES, f"raise this user's limit on processes, which is {own}")
    return Room("processes", kernel // _PROCESSES, "raise kernel.pid_max and kernel.threads-max with sysctl")


def memory(proc: Path = Path("/proc")) -> Room:
    """The room given by the memory of the machine."""
    step = "use a machine with more memory, or an engine that spans several machines, such as Kubernetes"
    return Room("memory", total_memory(proc) // _MEMORY, step)


def total_memory(proc: Path = Path("/proc")) -> int:
    """Bytes of memory of the machine."""
    line = next(line for line in (proc / "meminfo").read_text().splitlines() if line.startswith("MemTotal:"))
    return int(line.split()[1]) << 10
