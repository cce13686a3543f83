"""The few C library calls that Python has no functions for; each raises OSError when the kernel refuses it."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x20000, 0x10000000, 0x40000000
MS_NOSUID, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 0x2, 0x8, 0x1000, 0x4000, 0x40000
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV, MOUNT_ATTR_IDMAP = 0x1, 0x2, 0x4, 0x100000
RENAME_NOREPLACE, RENAME_EXCHANGE = 0x1, 0x2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38

_OPEN_TREE, _MOVE_MOUNT, _FSCONFIG, _FSPICK, _MOUNT_SETATTR = 428, 429, 431, 433, 442
"""Numbers of calls, the same on all machines; C libraries have functions for them only since glibc 2.36."""
_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000
_OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH, _FSPICK_CLOEXEC = 0x1, 0x4, 0x1
_MNT_DETACH, _FSCONFIG_SET_FLAG, _FSCONFIG_CMD_RECONFIGURE = 0x2, 0, 7
_NS_GET_USERNS = 0xB701
_SPLICE_F_NONBLOCK = 0x2

_libc = ctypes.CDLL(None, use_errno=True)
_renameat2 = getattr(_libc, "renameat2", None)


def unshare(what: int) -> None:
    """Moves this process into new namespaces of its own, of the given kinds (CLONE_NEW* flags)."""
    _check(_libc.unshare(what))


def setns(namespace: int, kind: int) -> None:
    """Moves this process into the namespace that a descriptor refers to."""
    _check(_libc.setns(namespace, kind))


def owner_of(namespace: int) -> int:
    """A descriptor of the user namespace that owns a namespace."""
    return fcntl.ioctl(namespace, _NS_GET_USERNS)


def mount(source: str, place: str, kind: str | None, flags: int, options: str = "") -> None:
    """Mounts a file system or a folder, or changes a mount; see mount(2)."""
    named = kind.encode() if kind is not None else None
    _check(_libc.mount(source.encode(), place.encode(), named, flags, options.encode() or None))


def own_mounts() -> None:
    """Gives this process its own mounts: only it and the processes it starts see what it mounts from now on."""
    unshare(CLONE_NEWNS)
    mount("none", "/", None, MS_REC | MS_PRIVATE)


def unmount(place: str) -> None:
    """Unmounts what is at a place, also if it is in use."""
    _check(_libc.umount2(os.fsencode(place), _MNT_DETACH))


def clone_mount(place: str) -> int:
    """A descriptor of a copy of the mount at a place, which is mounted nowhere."""
    return _checked(_libc.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(place), _OPEN_TREE_CLONE | os.O_CLOEXEC))


def change_mount(mount: int, attributes: int, users: int = 0) -> None:
    """Sets MOUNT_ATTR_* of a copy that is mounted nowhere; one of them shows the files' owners as those with the same
    ids in the user namespace that `users` refers to."""
    structure = struct.pack("QQQQ", attributes, 0, 0, users)
    size = ctypes.c_size_t(len(structure))
    _check(_libc.syscall(_MOUNT_SETATTR, mount, b"", _AT_EMPTY_PATH, structure, size))


def attach_mount(mount: int, place: str) -> None:
    """Mounts such a copy."""
    _check(_libc.syscall(_MOVE_MOUNT, mount, b"", _AT_FDCWD, os.fsencode(place), _MOVE_MOUNT_F_EMPTY_PATH))


def make_read_only(place: str) -> None:
    """Makes the file system at a place read-only, for all its mounts; `EBUSY` while a file is open for writing."""
    picked = _checked(_libc.syscall(_FSPICK, _AT_FDCWD, os.fsencode(place), _FSPICK_CLOEXEC))
    try:
        _check(_libc.syscall(_FSCONFIG, picked, _FSCONFIG_SET_FLAG, b"ro", None, 0))
        _check(_libc.syscall(_FSCONFIG, picked, _FSCONFIG_CMD_RECONFIGURE, None, None, 0))
    finally:
        os.close(picked)


def renameat2(folder: int, name: str, to_folder: int, to_name: str, flags: int) -> None:
    """Renames below open folders, as RENAME_* flags say; `ENOSYS` where the C library does not have the function."""
    if _renameat2 is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    names = os.fsencode(name), os.fsencode(to_name)
    if any(b"\0" in each for each in names):  # where C would see the end
        raise ValueError("embedded null byte")
    _check(_renameat2(folder, names[0], to_folder, names[1], flags))


IN_CHANGES = 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
"""Everything that changes a folder or a file in it: content, attributes, a writer that closes it, names."""


def inotify_init() -> int:
    """A descriptor for watches, which does not block."""
    return _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))


def inotify_add_watch(watches: int, path: str, events: int) -> None:
    """Watches a folder."""
    _checked(_libc.inotify_add_watch(watches, os.fsencode(path), events))


def tee(pipe: int, to_pipe: int, size: int) -> int:
    """Copies what is in a pipe, up to a size, into another one, without waiting; returns the size."""
    return _checked(_libc.tee(pipe, to_pipe, size, _SPLICE_F_NONBLOCK))


def prctl(option: int, value: int) -> None:
    """Sets one property of this process."""
    _check(_libc.prctl(option, value, 0, 0, 0))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
