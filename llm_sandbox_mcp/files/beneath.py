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
import time
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
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_UNNAMED = getattr(os, "O_TMPFILE", 0)

_NO_UNNAMED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)
_NO_FLAGS = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS)
_REFUSED = (errno.EPERM, errno.EACCES, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS)

_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.part")
_PART = 1 << 20
_LONGEST = 255
"""Bytes of a name."""
_TRIES = 100
_ACCESS, _CAPABILITY = "system.posix_acl_access", "security.capability"


class Changed(Exception):
    """What has the name is not what was expected: somebody else changed, removed or replaced it."""


class InTheWay(Exception):
    """Something that is not a regular file (a link, a pipe, a folder, a device) has the name."""


class NotOwned(Exception):
    """The owner, group or access list of a file could not be kept, or it runs with rights of its own."""


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
                _make_folder(at, name)
                descended = os.open(name, _FOLDER, dir_fd=at)
            os.close(at)
            at = descended
        yield at
    finally:
        os.close(at)


def open_file(folder: int, name: str) -> int:
    """A descriptor for reading of the entry of an open folder, which may be anything but a link. Raises `OSError`."""
    return os.open(name, _OLD, dir_fd=folder)


def write_file(folder: int, name: str, content: bytes) -> None:
    """Writes a whole file, or nothing, into an open folder; a regular file of that name is replaced.

    Raises `InTheWay`, `NotOwned` and `OSError`.
    """
    for _ in range(_TRIES):
        # A new draft each time: one that got a name and lost it to somebody else cannot get another.
        with new_file(folder) as draft:
            draft.write(content)
            with suppress(FileExistsError):
                draft.create(name)
                return
            with suppress(Changed):
                draft.replace(name, None)
                return
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))


@contextmanager
def new_file(folder: int) -> Iterator["Draft"]:
    """A file without a name in an open folder; it is gone after the scope unless it got one. Raises `OSError`."""
    file, hidden = _open_draft(folder)
    draft = Draft(folder, file, hidden)
    try:
        yield draft
    finally:
        draft.close()


class Draft:
    """A file that gets its name only when it is complete. Made by `new_file`; methods raise `OSError` besides."""

    def __init__(self, folder: int, file: int, hidden: str | None) -> None:
        self._folder = folder
        self._file = file
        self._hidden = hidden
        """A temporary name that it has, for example because the file system has no files without a name."""
        self._size = 0
        self._mtime = 0
        self._group = os.fstat(file).st_gid
        self._like_another = False

    def close(self) -> None:
        """Ends the use of the file, and removes it if it has no name but a temporary one."""
        with suppress(OSError):
            self._unhide()
        os.close(self._file)

    def write(self, part: bytes | bytearray | memoryview) -> None:
        """Appends to the file."""
        left = memoryview(part).cast("B")
        while left:
            written = os.write(self._file, left)
            self._size += written
            left = left[written:]

    def same_as(self, name: str) -> bool:
        """Whether the regular file of that name has the same content; not if it cannot be read."""
        try:
            if _regular(self._folder, name).st_size != self._size:
                return False
            other = open_file(self._folder, name)
        except (Changed, InTheWay, OSError):
            return False
        try:
            return stat.S_ISREG(os.fstat(other).st_mode) and self._same(other)
        except OSError:
            return False
        finally:
            os.close(other)

    def create(self, name: str, *, mode: int = 0o644, mtime: int | None = None) -> Stamp:
        """Gives the file a name that nothing has, or raises `FileExistsError`.

        `mode` are its nine permission bits, `mtime` are nanoseconds. If root runs the server, the file belongs to the
        owner and the group of the folder.
        """
        if self._like_another:
            self._become_new()
        _give_to_owner_of(self._folder, self._file)
        os.fchmod(self._file, mode & 0o777)
        self._set_time(mtime)
        if self._hidden is None:
            self._link(name)
        else:
            self._name(name, self._hidden)
        return self._stamp()

    def replace(self, name: str, expected: Stamp | None, *, mtime: int | None = None) -> Stamp:
        """Gives the file the name of another, which is removed; None expects any regular file.

        Owner, group, mode and attributes stay those of the old file. Raises `Changed`, `InTheWay` and `NotOwned`; then
        the old file, or what somebody else replaced it with, has the name.
        """
        with _held(self._folder, name, expected) as (old, state):
            self._become_like(old, state)
            self._set_time(mtime)
            # Otherwise, if the machine loses power soon, neither the old content nor the new one may be on the disk.
            os.fsync(self._file)
            if self._hidden is None:
                hidden = _hidden_name()
                self._link(hidden)
                self._hidden = hidden
            self._take_name(name, old, state, self._hidden)
        return self._stamp()

    def _same(self, other: int) -> bool:
        at = 0
        while part := os.read(other, _PART):
            if os.pread(self._file, len(part), at) != part:
                return False
            at += len(part)
        return at == self._size

    def _set_time(self, mtime: int | None) -> None:
        now = time.time_ns()
        os.utime(self._file, ns=(now, now if mtime is None else min(mtime, now)))
        # What was set is not what is there if the file system has whole seconds.
        self._mtime = os.fstat(self._file).st_mtime_ns

    def _stamp(self) -> Stamp:
        """What the file is now; if somebody wrote to it already, with a ctime that no file has."""
        now = Stamp.of(os.fstat(self._file))
        return now if (now.size, now.mtime) == (self._size, self._mtime) else now._replace(ctime=0)

    def _link(self, name: str) -> None:
        """Gives a file without a name its first one."""
        os.link(_path_of(self._file), name, dst_dir_fd=self._folder, follow_symlinks=True)

    def _name(self, name: str, hidden: str) -> None:
        """Gives a file with a temporary name another instead, which nothing has."""
        try:
            os.link(hidden, name, src_dir_fd=self._folder, dst_dir_fd=self._folder, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # Such as FAT, where no file has two names.
            _rename_new(self._folder, hidden, self._folder, name)
            self._hidden = None
        else:
            self._unhide()

    def _unhide(self) -> None:
        """Removes the temporary name, if it is still that of this file."""
        if self._hidden is not None and self._has(self._hidden):
            os.unlink(self._hidden, dir_fd=self._folder)
        self._hidden = None

    def _has(self, name: str) -> bool:
        return _same_file(self._folder, name, os.fstat(self._file))

    def _become_new(self) -> None:
        """Gives up what it took over from a file that it could not replace in the end."""
        os.fchmod(self._file, 0o600)
        os.fchown(self._file, os.geteuid(), self._group)
        _remove_attributes(self._file)
        self._like_another = False

    def _become_like(self, old: int, state: os.stat_result) -> None:
        """Takes over owner, group, attributes and mode of another file, or raises `NotOwned`."""
        if state.st_mode & (stat.S_ISUID | stat.S_ISGID) or _CAPABILITY in _attributes(_path_of(old)):
            raise NotOwned  # what code wrote would run with the rights of the file
        self._like_another = True
        # Attributes can be set by those who may write, and nobody else should read what belongs to nobody yet.
        os.fchmod(self._file, 0o600)
        own = os.fstat(self._file)
        try:
            if (own.st_uid, own.st_gid) != (state.st_uid, state.st_gid):
                os.fchown(self._file, state.st_uid, state.st_gid)
        except OSError as error:
            raise NotOwned from error
        _copy_attributes(old, self._file)
        # Last: a new owner takes set-id bits away, and an access list changes the bits of the group.
        os.fchmod(self._file, stat.S_IMODE(state.st_mode))
        own = os.fstat(self._file)
        if (own.st_uid, own.st_gid, own.st_mode) != (state.st_uid, state.st_gid, state.st_mode):
            raise NotOwned

    def _take_name(self, name: str, old: int, state: os.stat_result, hidden: str) -> None:
        """Takes the name of the old file and removes that, or raises `Changed`."""
        if _is_being_written(self._folder, name):
            raise Changed
        # Exchanging changes the ctime, so that this is the last moment to see whether only that has changed.
        if Stamp.of(_regular(self._folder, name)) != Stamp.of(state):
            raise Changed
        try:
            libc.renameat2(self._folder, hidden, self._folder, name, libc.RENAME_EXCHANGE)
        except FileNotFoundError as error:
            raise Changed from error
        except OSError as error:
            if error.errno not in _NO_FLAGS:
                raise
            # Other systems and some file systems cannot exchange: what somebody saves right here is replaced.
            os.rename(hidden, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
            self._hidden = None
            return
        # From here on, the temporary name is that of a person's file.
        self._hidden = None
        try:
            if not _is_still(self._folder, hidden, old, state):
                raise Changed
            os.unlink(hidden, dir_fd=self._folder)
        except BaseException:
            self._give_back(name, hidden)
            raise

    def _give_back(self, name: str, hidden: str) -> None:
        """Undoes an exchange: what has the temporary name gets its own back, or one beside it."""
        with suppress(FileNotFoundError):
            if self._has(name):
                libc.renameat2(self._folder, hidden, self._folder, name, libc.RENAME_EXCHANGE)
                if self._has(hidden):
                    self._hidden = hidden
                    return
        # Somebody was faster, and removed or replaced the draft while it had the name.
        with suppress(FileNotFoundError):
            _put_back(self._folder, hidden, self._folder, name)


def remove_file(folder: int, name: str, expected: Stamp) -> None:
    """Removes the expected file from an open folder. Raises `Changed`, `InTheWay` and `OSError`."""
    with _held(folder, name, expected) as (old, state):
        _remove(folder, name, old, state)


def move_file(folder: int, name: str, to_folder: int, to_name: str, expected: Stamp) -> Stamp:
    """Moves the expected file to a name that nothing has, as it is, and returns its new stamp.

    Raises `Changed`, `InTheWay`, `FileExistsError` and `OSError`.
    """
    with _held(folder, name, expected) as (old, state):
        try:
            _rename_new(folder, name, to_folder, to_name)
        except FileNotFoundError:
            _regular(folder, name)  # otherwise it is the other folder that is gone
            raise
        if not _is_still(to_folder, to_name, old, state):
            with suppress(FileNotFoundError):
                _put_back(to_folder, to_name, folder, name)
            raise Changed
        return Stamp.of(os.fstat(old))


def is_temporary(name: str) -> bool:
    """Whether only an unfinished change has such a name; one that stays is of a server that was killed."""
    return _TEMPORARY.fullmatch(name) is not None


def _hidden_name() -> str:
    """A name that cannot be guessed and is new: whoever can write to the folder could plant a link there."""
    return f".{secrets.token_hex(8)}.part"


def _path_of(file: int) -> str:
    return f"/proc/self/fd/{file}"


def _open_draft(folder: int) -> tuple[int, str | None]:
    """A descriptor of a new file, and its temporary name if it has one."""
    if _UNNAMED:
        try:
            file = os.open(".", _UNNAMED | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=folder)
        except OSError as error:
            if error.errno not in _NO_UNNAMED:
                raise
        else:
            if os.path.exists(_path_of(file)):
                return file, None
            # Without /proc, it could not get a name.
            os.close(file)
    hidden = _hidden_name()
    return os.open(hidden, _NEW, 0o600, dir_fd=folder), hidden


def _make_folder(at: int, name: str) -> None:
    """Makes a folder, unless something has the name by then."""
    # It gets its name when it is complete: others who use it at once give their files to its owner.
    hidden = _hidden_name()
    os.mkdir(hidden, 0o700, dir_fd=at)
    try:
        made = os.open(hidden, _FOLDER, dir_fd=at)
        try:
            state = os.fstat(made)
            # Somebody may have moved a folder of other people to the temporary name.
            if state.st_uid == os.geteuid() and stat.S_IMODE(state.st_mode) & 0o777 == 0o700:
                _give_to_owner_of(at, made)
                os.fchmod(made, 0o755 | state.st_mode & stat.S_ISGID)
        finally:
            os.close(made)
        with suppress(FileExistsError):
            _rename_new(at, hidden, at, name)
            return
    except BaseException:
        _remove_folder(at, hidden)
        raise
    _remove_folder(at, hidden)


def _remove_folder(at: int, name: str) -> None:
    with suppress(OSError):
        os.rmdir(name, dir_fd=at)


def _give_to_owner_of(folder: int, made: int) -> None:
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


def _regular(folder: int, name: str) -> os.stat_result:
    """What the regular file of that name is; raises `Changed` if nothing has it, `InTheWay` if something else has."""
    try:
        state = _state(folder, name)
    except FileNotFoundError as error:
        raise Changed from error
    if not stat.S_ISREG(state.st_mode):
        raise InTheWay
    return state


@contextmanager
def _held(folder: int, name: str, expected: Stamp | None) -> Iterator[tuple[int, os.stat_result]]:
    """The expected file of that name, and what it is; no other gets its number in the scope. See `_regular`."""
    _regular(folder, name)
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


def _is_being_written(folder: int, name: str) -> bool:
    """Whether a program has a file open for writing: what it writes into a file that was replaced would be lost."""
    if sys.platform != "linux":
        return False
    try:
        file = open_file(folder, name)
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


def _same_file(folder: int, name: str, state: os.stat_result) -> bool:
    try:
        return os.path.samestat(_state(folder, name), state)
    except FileNotFoundError:
        return False


def _is_still(folder: int, name: str, held: int, state: os.stat_result) -> bool:
    """Whether a held file has that name and the content that it had, however it got the name."""
    # Its number is asked for again: in layers of file systems, a file can get another when it is renamed.
    now = os.fstat(held)
    unchanged = (now.st_size, now.st_mtime_ns) == (state.st_size, state.st_mtime_ns)
    return unchanged and _same_file(folder, name, now)


def _remove(folder: int, name: str, held: int, state: os.stat_result) -> None:
    # A name cannot be removed only if it is that of a certain file. One that nobody else knows stays that file's.
    hidden = _hidden_name()
    try:
        os.rename(name, hidden, src_dir_fd=folder, dst_dir_fd=folder)
    except FileNotFoundError as error:
        raise Changed from error
    try:
        if not _is_still(folder, hidden, held, state):
            raise Changed
        os.unlink(hidden, dir_fd=folder)
    except BaseException:
        with suppress(FileNotFoundError):
            _put_back(folder, hidden, folder, name)
        raise


def _put_back(folder: int, name: str, to_folder: int, to_name: str) -> None:
    """Gives something of a person the name that it had, or one beside it if somebody else took that meanwhile."""
    with suppress(FileExistsError):
        _rename_new(folder, name, to_folder, to_name)
        return
    for number in count(1):
        end = ".kept" if number == 1 else f".kept-{number}"
        with suppress(FileExistsError):
            _rename_new(folder, name, to_folder, _shortened(to_name, _LONGEST - len(end)) + end)
            return


def _shortened(name: str, most: int) -> str:
    whole = os.fsencode(name)
    return name if len(whole) <= most else whole[:most].decode(errors="ignore")


def _rename_new(folder: int, name: str, to_folder: int, to_name: str) -> None:
    """Renames to a name that nothing has, or raises `FileExistsError`."""
    try:
        libc.renameat2(folder, name, to_folder, to_name, libc.RENAME_NOREPLACE)
        return
    except OSError as error:
        if error.errno not in _NO_FLAGS:
            raise
    try:
        os.link(name, to_name, src_dir_fd=folder, dst_dir_fd=to_folder, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # A folder, or a file system such as FAT: what somebody makes between the two calls is replaced.
        with suppress(FileNotFoundError):
            _state(to_folder, to_name)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), to_name) from None
        os.rename(name, to_name, src_dir_fd=folder, dst_dir_fd=to_folder)
        return
    hidden = _hidden_name()
    # Somebody else may have removed or replaced one of the two names.
    with suppress(FileNotFoundError):
        os.rename(name, hidden, src_dir_fd=folder, dst_dir_fd=folder)
        if _same_file(to_folder, to_name, _state(folder, hidden)):
            os.unlink(hidden, dir_fd=folder)
        else:
            _put_back(folder, hidden, folder, name)


if sys.platform == "linux":

    def _copy_attributes(source: int, target: int) -> None:
        """Gives a file the extended attributes of a held one, and no others; raises `NotOwned`."""
        _remove_attributes(target)  # such as the access list for new files of the folder
        for name in _attributes(_path_of(source)):
            try:
                os.setxattr(target, name, os.getxattr(_path_of(source), name))
            except OSError as error:
                if error.errno == errno.ENODATA:
                    raise Changed from error
                if error.errno not in _REFUSED or name.startswith("user."):
                    raise
                # Those of security modules are set by the system; it has its own for each file.
                if name.startswith("system."):
                    raise NotOwned from error

    def _remove_attributes(file: int) -> None:
        for name in _attributes(file):
            if name == _ACCESS or name.startswith("user."):
                os.removexattr(file, name)

    def _attributes(file: str | int) -> list[str]:
        try:
            return os.listxattr(file)
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS):
                return []
            raise

else:

    def _copy_attributes(source: int, target: int) -> None:
        """Python has no functions for attributes of files on other systems."""

    def _remove_attributes(file: int) -> None:
        """See above."""

    def _attributes(file: str | int) -> list[str]:
        """See above."""
        return []
