"""The memory of this machine, and limits of a profile that it cannot give."""

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from ..backends.room import total_memory
from ..base.errors import ProfileError
from ..base.units import format_size
from .profile import Profile

_IN_MEMORY = ("memory", "disk", "file_size")
"""Limits on what is kept in memory: files of sandboxes are, too."""
_KEPT = 8
"""Up to one part in so many of the memory that a machine was sold with is kept by its firmware and kernel."""
_OWN_MACHINE = "embedded"
"""The backend whose sandboxes are always on this machine, which has to be Linux; engines can be on others."""


def check_limits(profile: Profile, memory: Callable[[], int] | None = None) -> None:
    """Raises `ProfileError` for a limit that no sandbox on this machine can reach."""
    for mistake in limit_mistakes(profile, memory):
        raise mistake


def limit_mistakes(profile: Profile, memory: Callable[[], int] | None = None) -> Iterator[ProfileError]:
    """An error for each limit in the operator's own file that is more than the machine has, as `memory` returns it.

    The limits of included profiles are upper bounds for machines of any size.
    """
    written = [name for name in _IN_MEMORY if name in profile.own_limits]
    if profile.backend.name != _OWN_MACHINE or not written or sys.platform != "linux":
        return
    most = (memory or machine_memory)()
    for name in written:
        size = getattr(profile.limits, name)
        if size > most + most // _KEPT:
            reason = f"{format_size(size)} is more memory than this machine has"
            yield profile.mistake(f"limits.{name}", reason, f'give at most "{most >> 20}MiB"')


def machine_memory(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes of memory that this process can use: those of the machine, or of its control group if that has fewer."""
    return min([total_memory(proc), *_group_limits(proc, groups)])


def _group_limits(proc: Path, groups: Path) -> Iterator[int]:
    """The memory limits of this process's control group and of the groups around it, where groups usually are."""
    for line in _text(proc / "self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            tree, file = groups, "memory.max"
        elif "memory" in controllers.split(","):
            tree, file = groups / "memory", "memory.limit_in_bytes"
        else:
            continue
        # In a container the path can be that of the host; the tree then begins with the container's own group.
        own = PurePosixPath(path.lstrip("/"))
        for group in (own, *own.parents):
            with suppress(ValueError):  # "max", or no limit at all
                yield int(_text(tree / group / file))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
