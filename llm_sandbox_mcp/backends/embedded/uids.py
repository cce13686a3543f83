"""A uid for each sandbox of a server that is not root: those that /etc/subuid lends its user.

What the kernel counts for each user, such as watches and descriptors in flight, sandboxes of one uid take from each
other, and from their server. So the launcher becomes root of a user namespace in which the lent uids are, and gives
each sandbox another. What all of them see may lie where none of these uids can go: it is mounted where they can.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import resource
import shutil
import signal
from dataclasses import dataclass

from .. import libc
from .forked import to_the_end

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SHOWN = "/mnt"
"""Where the folders are mounted; empty otherwise, and seen by the launcher and what it starts alone."""
MOST = 65_536
"""Uids in use, however many are lent."""

_LISTS = ("/etc/subuid", "/etc/subgid")
_PROGRAMS = ("newuidmap", "newgidmap")
_SECONDS = 10
_SHARED_LIMITS = {resource.RLIMIT_SIGPENDING: 1024, resource.RLIMIT_MSGQUEUE: 64 << 10}
_SYSCTLS = "/proc/sys/user"
_SHARED_COUNTS = ("max_inotify_instances", "max_inotify_watches")
_SHARE = 16
"""A sandbox has one of so many parts of what there is for the server's user."""
_SAID = 300


class NotLent(Exception):
    """Sandboxes cannot have uids of their own: "cause; next step"."""


@dataclass(frozen=True)
class Lent:
    """The first of the uids and gids that are lent, and how many of each are used."""

    uid: int
    gid: int
    count: int


def lent(lists: Sequence[str] = _LISTS) -> Lent:
    """What is lent to the user of this process; `NotLent` where that is nothing."""
    if missing := [name for name in _PROGRAMS if shutil.which(name) is None]:
        raise NotLent(f"{missing[0]} is not on PATH; install it, in Debian with: sudo apt-get install uidmap")
    names = {str(os.geteuid())}
    with contextlib.suppress(KeyError):
        names.add(pwd.getpwuid(os.geteuid()).pw_name)
    (uid, uids), (gid, gids) = (_range(path, names) for path in lists)
    return Lent(uid, gid, min(uids, gids, MOST))


def _range(path: str, names: set[str]) -> tuple[int, int]:
    """The first of the numbers that a file lends to one of these, and how many; subuid(5) describes the lines."""
    with contextlib.suppress(OSError), open(path) as file:
        for line in file:
            owner, *numbers = line.strip().split(":")
            if owner in names and len(numbers) == 2 and all(map(str.isdigit, numbers)) and int(numbers[1]):
                return int(numbers[0]), int(numbers[1])
    user = max(names, key=len)
    step = f"sudo usermod --add-subuids 300000-365535 --add-subgids 300000-365535 {user}"
    raise NotLent(f"{path} lends nothing to {user}; {step}")


def try_out(program: list[str], lent: Lent | None, shares: Mapping[str, int]) -> None:
    """Runs a program as sandboxes will be, with a lent uid if there is one; raises `NotLent` where that fails."""
    log = os.memfd_create("trial")
    try:
        pid = os.fork()
        if pid == 0:
            _become_trial(program, lent, shares, log)
        _, status = os.waitpid(pid, 0)
        if status:
            said = " ".join(os.pread(log, _SAID, 0).decode(errors="replace").split())
            raise NotLent(
                f"the uids in {_LISTS[0]} cannot be used: {said or os.waitstatus_to_exitcode(status)}; "
                "see whether `unshare --map-auto --map-root-user true` works for the server's user"
            )
    finally:
        os.close(log)


def _become_trial(program: list[str], lent: Lent | None, shares: Mapping[str, int], log: int) -> None:
    with to_the_end():
        signal.alarm(_SECONDS)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if lent is not None:
            enter(lent)
            os.setgroups([])
            os.setresgid(1, 1, 1)
            os.setresuid(1, 1, 1)
        bound(shares)
        os.execve(program[0], program, {})


def enter(lent: Lent) -> None:
    """Makes this process root of a new user namespace, in which its own user is 0 and the lent uids begin at 1."""
    ready, entered = os.pipe()
    mapper = os.fork()
    if mapper == 0:
        os.close(entered)
        _map(lent, ready)
    os.close(ready)
    try:
        libc.unshare(libc.CLONE_NEWUSER)
        os.write(entered, b"1")
    finally:
        os.close(entered)
        _, status = os.waitpid(mapper, 0)
    if status:
        raise PermissionError(f"{_PROGRAMS[0]} or {_PROGRAMS[1]} refused")


def _map(lent: Lent, entered: int) -> None:
    """In a child: has the system's programs, which may do so, map the uids and gids of the parent's new namespace."""
    with to_the_end(quiet=True):
        if not os.read(entered, 1):
            os._exit(1)
        parent = str(os.getppid())
        for program, own, first in zip(_PROGRAMS, (os.geteuid(), os.getegid()), (lent.uid, lent.gid), strict=True):
            path = shutil.which(program) or program
            argv = [program, parent, "0", str(own), "1", "1", str(first), str(lent.count)]
            _, status = os.waitpid(os.posix_spawn(path, argv, {}), 0)
            if status:
                os._exit(1)


def shares() -> Mapping[str, int]:
    """How much a sandbox may have of what is counted for the server's user too; to be asked for in its namespace."""
    found = {}
    for name in _SHARED_COUNTS:
        with contextlib.suppress(FileNotFoundError), open(f"{_SYSCTLS}/{name}") as file:
            found[name] = max(1, int(file.read()) // _SHARE)
    return found


def bound(shares: Mapping[str, int]) -> None:
    """Puts this process into a user namespace of its own, where it is who it was, and can have a part of what there is.

    Some things are counted for whoever made a namespace too, up to the server's user; a lent uid does not change that.
    So the namespace has a limit of its own.
    """
    uid, gid = os.geteuid(), os.getegid()
    libc.unshare(libc.CLONE_NEWUSER)
    # Another uid was taken before, since when these files are root's.
    libc.prctl(libc.PR_SET_DUMPABLE, 1)
    for name, most in shares.items():
        # In a container they may not be writable; sandboxes then can take these from each other, and no harm else.
        with contextlib.suppress(PermissionError):
            _write(f"{_SYSCTLS}/{name}", str(most))
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")
    # Now, as the limits that hold when a namespace is made bound what its maker has in all.
    for number, most in _SHARED_LIMITS.items():
        _, hard = resource.getrlimit(number)
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(number, (limit, limit))


def _write(path: str, text: str) -> None:
    with open(path, "wb", buffering=0) as file:
        file.write(text.encode())


def show(folders: Mapping[str, str]) -> None:
    """Mounts folders by their names below `SHOWN`, for this process and what it starts."""
    libc.own_mounts()
    # Opened before something is mounted there: they may be below it.
    opened = {name: os.open(path, os.O_PATH) for name, path in folders.items()}
    libc.mount("tmpfs", SHOWN, "tmpfs", 0, "mode=0755")
    for name, descriptor in opened.items():
        place = os.path.join(SHOWN, name)
        os.mkdir(place, 0o755)
        libc.mount(f"/proc/self/fd/{descriptor}", place, None, libc.MS_BIND | libc.MS_REC)
        os.close(descriptor)
