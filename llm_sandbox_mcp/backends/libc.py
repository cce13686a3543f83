"""The few calls of the C library that Python has no functions for, each an OSError where the kernel refuses it."""

from __future__ import annotations

import ctypes
import fcntl
import os

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x20000, 0x10000000, 0x40000000
MS_NOSUID, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 0x2, 0x8, 0x1000, 0x4000, 0x40000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38

_NS_GET_USERNS = 0xB701

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(what: int) -> None:
    """Gives this process a namespace of its own, of the kinds that are named."""
    _check(_libc.unshare(what))


def setns(namespace: int, kind: int) -> None:
    """Puts this process into a namespace, by its descriptor."""
    _check(_libc.setns(namespace, kind))


def owner_of(namespace: int) -> int:
    """A descriptor of the user namespace that a namespace belongs to."""
    return fcntl.ioctl(namespace, _NS_GET_USERNS)


def mount(source: str, place: str, kind: str | None, flags: int, options: str = "") -> None:
    """Mounts a file system, a folder, or changes what is mounted, as mount(2) says."""
    named = kind.encode() if kind is not None else None
    _check(_libc.mount(source.encode(), place.encode(), named, flags, options.encode() or None))


def own_mounts() -> None:
    """Gives this process mounts of its own: what it mounts from now on is seen by it and what it starts alone."""
    unshare(CLONE_NEWNS)
    mount("none", "/", None, MS_REC | MS_PRIVATE)


def prctl(option: int, value: int) -> None:
    """Sets one property of this process."""
    _check(_libc.prctl(option, value, 0, 0, 0))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
