"""A separate uid for each sandbox of a server that is not root, from the uids that /etc/subuid lends to its user.

The kernel counts some resources for each user, such as watches and descriptors in flight. Sandboxes with the same uid
take these from each other and from their server. So the launcher becomes root of a user namespace that contains the
lent uids, and gives each sandbox a different one. The folders that all sandboxes see may be out of reach for these
uids, so they are mounted at a place that the uids can reach.
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
"""Where the folders are mounted, and nothing else; only the launcher and the processes it starts see these mounts."""
MOST = 65_536
"""The most uids that are used, even if more are lent."""

_LISTS = ("/etc/subuid", "/etc/subgid")
_PROGRAMS = ("newuidmap", "newgidmap")
_SECONDS = 10
SHARED_LIMITS = {"SIGPENDING": 1024, "MSGQUEUE": 64 << 10}
"""Limits (RLIMIT_*) on what is also counted for the server's user, if that is not root, or for a zygote's."""
_SYSCTLS = "/proc/sys/user"
_SHARED_COUNTS = ("max_inotify_instances", "max_inotify_watches")
_SHARE = 16
"""A sandbox gets this fraction, 1/16, of what the server's user may have."""
_OUTPUT_BYTES = 300


class NotLent(Exception):
    """Sandboxes cannot have their own uids; its arguments are the cause and the next step."""


@dataclass(frozen=True)
class Lent:
    """The first of the lent uids and gids, and how many of each are used."""

    uid: int
    gid: int
    count: int


def lent(lists: Sequence[str] = _LISTS) -> Lent:
    """The ids that are lent to the user of this process; `NotLent` if there are none."""
    if missing := [name for name in _PROGRAMS if shutil.which(name) is None]:
        raise NotLent(f"{missing[0]} is not on PATH", "install it, on Debian with: sudo apt-get install uidmap")
    names = {str(os.geteuid())}
    with contextlib.suppress(KeyError):
        names.add(pwd.getpwuid(os.geteuid()).pw_name)
    (uid, uids), (gid, gids) = (_range(path, names) for path in lists)
    return Lent(uid, gid, min(uids, gids, MOST))


def _range(path: str, names: set[str]) -> tuple[int, int]:
    """The first id that a file lends to one of these users, and how many; subuid(5) describes the lines."""
    with contextlib.suppress(OSError), open(path) as file:
        for line in file:
            owner, *numbers = line.strip().split(":")
            if owner in names and len(numbers) == 2 and all(map(str.isdigit, numbers)) and int(numbers[1]):
                return int(numbers[0]), int(numbers[1])
    user = max(names, key=len)
    step = f"sudo usermod --add-subuids 300000-365535 --add-subgids 300000-365535 {user}"
    raise NotLent(f"{path} lends nothing to {user}", step)


def try_out(program: list[str], lent: Lent | None, shares: Mapping[str, int]) -> None:
    """Runs a program as sandboxes will run, with a lent uid if `lent` is given; raises `NotLent` if that fails."""
    log = os.memfd_create("trial")
    try:
        pid = os.fork()
        if pid == 0:
            _become_trial(program, lent, shares, log)
        _, status = os.waitpid(pid, 0)
        if status:
            output = " ".join(os.pread(log, _OUTPUT_BYTES, 0).decode(errors="replace").split())
            raise NotLent(
                f"the uids in {_LISTS[0]} cannot be used: {output or os.waitstatus_to_exitcode(status)}",
                "check whether `unshare --map-auto --map-root-user true` works for the server's user",
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
        raise PermissionError(f"{_PROGRAMS[0]} or {_PROGRAMS[1]} refused the mapping")


def _map(lent: Lent, entered: int) -> None:
    """Runs in a child: maps uids and gids into the parent's new namespace, with the system's privileged programs."""
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
    """How much a sandbox may have of resources that are also counted for the server's user.

    Must be called in the user namespace of the server's user.
    """
    found = {}
    for name in _SHARED_COUNTS:
        with contextlib.suppress(FileNotFoundError), open(f"{_SYSCTLS}/{name}") as file:
            found[name] = max(1, int(file.read()) // _SHARE)
    return found


def bound(shares: Mapping[str, int]) -> None:
    """Moves this process into its own user namespace, with the same uid and gid, and with limits on its resources.

    The kernel counts some resources also for the users who made the namespaces, up to the server's user; a lent uid
    does not change that. So the namespace gets its own limits.
    """
    uid, gid = os.geteuid(), os.getegid()
    libc.unshare(libc.CLONE_NEWUSER)
    # The process changed its uid before; since then, its files below /proc/self belong to root.
    libc.prctl(libc.PR_SET_DUMPABLE, 1)
    for name, most in shares.items():
        # In a container these files may not be writable. Then sandboxes can take these resources from each other, which
        # is the only harm.
        with contextlib.suppress(PermissionError):
            _write(f"{_SYSCTLS}/{name}", str(most))
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")
    # Set only now: the limits in force when a namespace is made bound what its maker may have in total.
    for name, most in SHARED_LIMITS.items():
        number = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(number)
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(number, (limit, limit))


def _write(path: str, text: str) -> None:
    with open(path, "wb", buffering=0) as file:
        file.write(text.encode())


def show(folders: Mapping[str, str], views: Mapping[str, str]) -> dict[str, str]:
    """Mounts each folder by its name below `SHOWN`, for this process and the processes it starts; returns the places.

    `views` are folders of the user's, which code will see. One that cannot be mounted is left out. File systems that
    are mounted below it are not shown: they could be `/proc` or `/sys`.
    """
    libc.own_mounts()
    # Opened before `SHOWN` is covered by a mount: the folders may be below it.
    opened = {name: os.open(path, os.O_PATH) for name, path in folders.items()}
    for name, path in views.items():
        with contextlib.suppress(OSError):
            opened[name] = os.open(path, os.O_PATH | os.O_DIRECTORY)
    libc.mount("tmpfs", SHOWN, "tmpfs", 0, "mode=0755")
    places = {}
    for name, descriptor in opened.items():
        place = os.path.join(SHOWN, name)
        os.mkdir(place, 0o755)
        try:
            libc.mount(f"/proc/self/fd/{descriptor}", place, None, libc.MS_BIND | (0 if name in views else libc.MS_REC))
            places[name] = place
        except OSError:
            if name not in views:
                raise
        os.close(descriptor)
    return places
