"""Files below a folder on this machine, opened by descriptors: no link on the way is followed, however new it is.

People and their programs use these folders at the same time. A file of theirs is replaced, removed or moved only if it
is the very file that was expected, and it keeps its owner and its mode. If one of them is faster, what they made stays.
"""

import errno
import fcntl
import os
import re
import secrets
import signal
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from ..backends import libc
from ..backends.listing import Stamp

_TOP = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FOLDER = _TOP | os.O_NOFOLLOW
# O_NONBLOCK: a FIFO must not block the thread that opens it.
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# With O_PATH, the file need not be readable, and nothing notices that it is opened. Not on macOS.
_LOOK = getattr(os, "O_PATH", _OLD) | os.O_NOFOLLOW | os.O_CLOEXEC

NO_FLAGS = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of a file system that cannot exchange two names, or rename only to a new one."""
NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS)
"""Errors of a file system where no file has two names."""

_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.part")
_LONGEST = 255
"""Bytes of a name."""


class Changed(Exception):
    """What has the name is not what was expected: somebody else changed, removed or replaced it."""


class InTheWay(Exception):
    """Something that is not a regular file (a link, a pipe, a folder, a device) has the name."""


@contextmanager
def open_folder(top: Path, below: Sequence[str] = (), *, make: bool = False) -> Iterator[int]:
    """A descriptor of the folder that the names `below` lead to; `make` creates missing folders. Raises `OSError`."""
    at = os.open(top, _TOP)
    try:
        for name in below:
            if name in ("", ".", "..") or "/" in name:
                raise OSError(errno.EINVAL, "not the name of a folder")
            try:
                descended = os.open(name, _FOLDER, dir_fd=at)
            except FileNotFoundError:
                if not make:
                    raise
                make_folder(at, name)
                descended = os.open(name, _FOLDER, dir_fd=at)
            os.close(at)
            at = descended
        yield at
    finally:
        os.close(at)


def make_folder(at: int, name: str, others: int = 0o055) -> bool:
    """Makes a folder in an open folder; false if something has the name by then. Raises `OSError`.

    `others` are the permissions of all but the owner, who has all.
    """
    # It gets its name when it is complete: others who use it at once give their files to its owner.
    hidden = hidden_name()
    os.mkdir(hidden, 0o700, dir_fd=at)
    try:
        made = os.open(hidden, _FOLDER, dir_fd=at)
        try:
            state = os.fstat(made)
            # Somebody may have moved a folder of other people to the temporary name.
            if state.st_uid == os.geteuid() and stat.S_IMODE(state.st_mode) & 0o777 == 0o700:
                give_to_owner_of(at, made)
                os.fchmod(made, 0o700 | others & 0o055 | state.st_mode & stat.S_ISGID)
        finally:
            os.close(made)
        with suppress(FileExistsError):
            rename_new(at, hidden, at, name)
            return True
    except BaseException:
        _remove_folder(at, hidden)
        raise
    _remove_folder(at, hidden)
    return False


def open_file(folder: int, name: str) -> int:
    """A descriptor for reading of the entry of an open folder, which may be anything but a link. Raises `OSError`."""
    return os.open(name, _OLD, dir_fd=folder)


def remove_file(folder: int, name: str, expected: Stamp) -> None:
    """Removes the expected file from an open folder. Raises `Changed`, `InTheWay` and `OSError`."""
    with held(folder, name, expected) as (old, state):
        _remove(folder, name, old, state)


def move_file(folder: int, name: str, to_folder: int, to_name: str, expected: Stamp) -> Stamp:
    """Moves the expected file to a name that nothing has, as it is, and returns its new stamp.

    Raises `Changed`, `InTheWay`, `FileExistsError` and `OSError`.
    """
    with held(folder, name, expected) as (old, state):
        try:
            rename_new(folder, name, to_folder, to_name)
        except FileNotFoundError:
            regular_state(folder, name)  # otherwise it is the other folder that is gone
            raise
        if not is_still(to_folder, to_name, old, state):
            with suppress(FileNotFoundError):
                put_back(to_folder, to_name, folder, name)
            raise Changed
        return Stamp.of(os.fstat(old))


def is_temporary(name: str) -> bool:
    """Whether only an unfinished change has such a name; one that stays is of a server that was killed."""
    return _TEMPORARY.fullmatch(name) is not None


def hidden_name() -> str:
    """A name that cannot be guessed and is new: whoever can write to the folder could plant a link there."""
    return f".{secrets.token_hex(8)}.part"


def _remove_folder(at: int, name: str) -> None:
    with suppress(OSError):
        os.rmdir(name, dir_fd=at)


def give_to_owner_of(folder: int, made: int) -> None:
    """Gives what root made to the owner and the group of the folder that it is in."""
    if os.geteuid() != 0:
        return
    owner, own = os.fstat(folder), os.fstat(made)
    if (own.st_uid, own.st_gid) != (owner.st_uid, owner.st_gid):
        # Refused where root has not all rights, such as on a mount of another machine: then it stays root's.
        with suppress(OSError):
            os.fchown(made, owner.st_uid, owner.st_gid)


def _state(folder: int, name: str) -> os.stat_result:
    return os.stat(name, dir_fd=folder, follow_symlinks=False)


def regular_state(folder: int, name: str) -> os.stat_result:
    """What the regular file of that name is; raises `Changed` if nothing has it, `InTheWay` if something else has."""
    try:
        state = _state(folder, name)
    except FileNotFoundError as error:
        raise Changed from error
    if not stat.S_ISREG(state.st_mode):
        raise InTheWay
    return state


@contextmanager
def held(folder: int, name: str, expected: Stamp | None) -> Iterator[tuple[int, os.stat_result]]:
    """The expected file of that name, and what it is; no other gets its number in the scope. See `regular`."""
    regular_state(folder, name)
    try:
        held = os.open(name, _LOOK, dir_fd=folder)
    except FileNotFoundError as error:
        raise Changed from error
    try:
        state = os.fstat(held)
        if not stat.S_ISREG(state.st_mode):
            raise InTheWay
        if expected is not None and Stamp.of(state) != expected:
            raise Changed
        yield held, state
    finally:
        os.close(held)


def same_file(folder: int, name: str, state: os.stat_result) -> bool:
    """Whether the entry of that name is the file that the kernel described."""
    try:
        return os.path.samestat(_state(folder, name), state)
    except FileNotFoundError:
        return False


def is_being_written(folder: int, name: str) -> bool:
    """Whether a program has a file open for writing: what it writes into a file that was replaced would be lost."""
    if sys.platform != "linux":
        return False
    try:
        file = open_file(folder, name)
    except BlockingIOError:
        return True  # it has a lease for writing
    except OSError:
        return False
    try:
        # A lease is refused if there is a writer. A program that opens the file right now is told to wait for the end
        # of the lease, and this process gets a signal, which must not be the usual one: that would end it.
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        # Other errors: a file of another user, or a file system without leases.
        return error.errno == errno.EAGAIN
    finally:
        os.close(file)
    return False


def is_still(folder: int, name: str, held: int, state: os.stat_result) -> bool:
    """Whether a held file has that name and is as it was but for its ctime, however it got the name."""
    # Its number is asked for again: in layers of file systems, a file can get another when it is renamed.
    now = os.fstat(held)
    return _facts(now) == _facts(state) and same_file(folder, name, now)


def _facts(state: os.stat_result) -> tuple[int, ...]:
    return state.st_size, state.st_mtime_ns, state.st_mode, state.st_uid, state.st_gid


def _remove(folder: int, name: str, held: int, state: os.stat_result) -> None:
    # A name cannot be removed only if it is that of a certain file. One that nobody else knows stays that file's.
    hidden = hidden_name()
    try:
        os.rename(name, hidden, src_dir_fd=folder, dst_dir_fd=folder)
    except FileNotFoundError as error:
        raise Changed from error
    try:
        # Under this name, no program opens it any more.
        if is_being_written(folder, hidden) or not is_still(folder, hidden, held, state):
            raise Changed
        os.unlink(hidden, dir_fd=folder)
    except BaseException:
        with suppress(FileNotFoundError):
            put_back(folder, hidden, folder, name)
        raise


def put_back(folder: int, name: str, to_folder: int, to_name: str) -> None:
    """Gives something of a person the name that it had, or one beside it if somebody else took that meanwhile."""
    with suppress(FileExistsError):
        rename_new(folder, name, to_folder, to_name)
        return
    for number in count(1):
        end = ".kept" if number == 1 else f".kept-{number}"
        with suppress(FileExistsError):
            rename_new(folder, name, to_folder, _shortened(to_name, _LONGEST - len(end)) + end)
            return


def _shortened(name: str, most: int) -> str:
    whole = os.fsencode(name)
    return name if len(whole) <= most else whole[:most].decode(errors="ignore")


def rename_new(folder: int, name: str, to_folder: int, to_name: str) -> None:
    """Renames to a name that nothing has, or raises `FileExistsError`."""
    try:
        libc.renameat2(folder, name, to_folder, to_name, libc.RENAME_NOREPLACE)
        return
    except OSError as error:
        if error.errno not in NO_FLAGS:
            raise
    try:
        os.link(name, to_name, src_dir_fd=folder, dst_dir_fd=to_folder, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        # A folder, or a file system such as FAT: what somebody makes between the two calls is replaced.
        with suppress(FileNotFoundError):
            _state(to_folder, to_name)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), to_name) from None
        os.rename(name, to_name, src_dir_fd=folder, dst_dir_fd=to_folder)
        return
    hidden = hidden_name()
    # Somebody else may have removed or replaced one of the two names.
    with suppress(FileNotFoundError):
        os.rename(name, hidden, src_dir_fd=folder, dst_dir_fd=folder)
        if same_file(to_folder, to_name, _state(folder, hidden)):
            os.unlink(hidden, dir_fd=folder)
        else:
            put_back(folder, hidden, folder, name)
