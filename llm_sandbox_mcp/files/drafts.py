"""Files that get a name in an open folder only when they are complete, so that nobody sees half of one.

One that replaces a file of a person's takes over its owner, its mode and its attributes, or does not replace it.
"""

import errno
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from ..backends import libc
from ..backends.listing import Stamp
from .beneath import (
    NO_FLAGS,
    NO_LINKS,
    Changed,
    InTheWay,
    give_to_owner_of,
    held,
    hidden_name,
    is_being_written,
    is_still,
    open_file,
    put_back,
    regular_state,
    rename_new,
    same_file,
)
from .merging import VERSIONS, beside

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_UNNAMED = getattr(os, "O_TMPFILE", 0)
_NO_UNNAMED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)
_REFUSED = (errno.EPERM, errno.EACCES, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS)
_PART = 1 << 20
_TRIES = 100
_ACCESS, _CAPABILITY = "system.posix_acl_access", "security.capability"


class NotOwned(Exception):
    """The owner, group or access list of a file could not be kept, or it runs with rights of its own."""


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
            if regular_state(self._folder, name).st_size != self._size:
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
        give_to_owner_of(self._folder, self._file)
        os.fchmod(self._file, mode & 0o777)
        self._set_time(mtime)
        if self._hidden is None:
            self._link(name)
        else:
            self._name(name, self._hidden)
        return self._stamp()

    def create_beside(
        self,
        name: str,
        *,
        mode: int = 0o644,
        mtime: int | None = None,
        new: bool = False,
        taken: Callable[[str], bool] = lambda name: False,
    ) -> tuple[str, Stamp | None]:
        """Gives the file a name beside that of something else, and not more permissions than that has.

        Returns the name, and None instead of a stamp if what has it has the same content already, unless the file has
        to be `new`. Names that are `taken` are not used.
        """
        with suppress(FileNotFoundError):
            mode &= os.stat(name, dir_fd=self._folder, follow_symlinks=False).st_mode | 0o600
        for other in (beside(name, number) for number in range(1, VERSIONS + 1)):
            if taken(other):
                continue
            with suppress(FileExistsError):
                return other, self.create(other, mode=mode, mtime=mtime)
            if not new and self.same_as(other):
                return other, None
        raise OSError(errno.EEXIST, f"there are {VERSIONS} versions of it")

    def replace(self, name: str, expected: Stamp | None, *, mtime: int | None = None) -> Stamp:
        """Gives the file the name of another, which is removed; None expects any regular file.

        Owner, group, mode and attributes stay those of the old file. Raises `Changed`, `InTheWay` and `NotOwned`; then
        the old file, or what somebody else replaced it with, has the name.
        """
        with held(self._folder, name, expected) as (old, state):
            self._become_like(old, state)
            self._set_time(mtime)
            # Otherwise, if the machine loses power soon, neither the old content nor the new one may be on the disk.
            os.fsync(self._file)
            if self._hidden is None:
                hidden = hidden_name()
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
            if error.errno not in NO_LINKS:
                raise
            # Such as FAT, where no file has two names.
            rename_new(self._folder, hidden, self._folder, name)
            self._hidden = None
        else:
            self._unhide()

    def _unhide(self) -> None:
        """Removes the temporary name, if it is still that of this file."""
        if self._hidden is not None and self._has(self._hidden):
            os.unlink(self._hidden, dir_fd=self._folder)
        self._hidden = None

    def _has(self, name: str) -> bool:
        return same_file(self._folder, name, os.fstat(self._file))

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
        if is_being_written(self._folder, name):
            raise Changed
        # Exchanging changes the ctime, so that this is the last moment to see whether only that has changed.
        if Stamp.of(regular_state(self._folder, name)) != Stamp.of(state):
            raise Changed
        try:
            libc.renameat2(self._folder, hidden, self._folder, name, libc.RENAME_EXCHANGE)
        except FileNotFoundError as error:
            raise Changed from error
        except OSError as error:
            if error.errno not in NO_FLAGS:
                raise
            # Other systems and some file systems cannot exchange: what somebody saves right here is replaced.
            os.rename(hidden, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
            self._hidden = None
            return
        # From here on, the temporary name is that of a person's file.
        self._hidden = None
        try:
            # Asked once more: only now does no program open it any more by its name.
            if is_being_written(self._folder, hidden) or not is_still(self._folder, hidden, old, state):
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
            put_back(self._folder, hidden, self._folder, name)


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
    hidden = hidden_name()
    return os.open(hidden, _NEW, 0o600, dir_fd=folder), hidden


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
