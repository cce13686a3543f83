"""Tar streams, without any I/O: written for a `tar` inside a sandbox, and read from one that may be hostile."""

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

BLOCK = 512
_NAME_MAX = 4096
_REGULAR = (b"0", b"\0")
_LONG_NAME = b"L"
_EXTENDED = b"x"
_EXTENDED_MAX = 1 << 20
_ATTRIBUTE = b"SCHILY.xattr."
FILE_MODE, EXECUTABLE_MODE = 0o644, 0o755
_FOLDER_MODE = 0o755
END = b"\0" * (2 * BLOCK)
"""The end of an archive."""


def header(path: str, size: int, *, mode: int = FILE_MODE) -> bytes:
    """The header of one regular file, after those of its folders.

    The archive contains the folders so that `tar` replaces a symbolic link in the path instead of following it.
    """
    folders = (str(folder) for folder in reversed(PurePosixPath(path).parents) if folder.name)
    return b"".join(map(folder_header, folders)) + file_header(path, size, mode=mode)


def folder_header(path: str) -> bytes:
    """The header of a folder."""
    info = tarfile.TarInfo(path)
    info.type, info.mode = tarfile.DIRTYPE, _FOLDER_MODE
    return info.tobuf(tarfile.GNU_FORMAT)


def file_header(path: str, size: int, *, mode: int) -> bytes:
    """The header of one regular file alone."""
    info = tarfile.TarInfo(path)
    info.size, info.mode = size, mode
    return info.tobuf(tarfile.GNU_FORMAT)


def timed_header(path: str, size: int, *, mode: int, mtime: int) -> bytes:
    """The header of one regular file with its time in nanoseconds, which only the POSIX format can express.

    `tarfile` takes ten times as long for it, which a folder of many files would wait for.
    """
    time = b"%s%d.%09d" % (b"-" if mtime < 0 else b"", *divmod(abs(mtime), 10**9))
    records = _record(b"mtime", time) + _record(b"path", path.encode())
    if size >= 8**11:
        records += _record(b"size", b"%d" % size)
    extended = _block(b"x", len(records), 0o644) + records + padding(len(records))
    return extended + _block(b"0", size % 8**11, mode)


def _record(key: bytes, value: bytes) -> bytes:
    """A record of the POSIX format, which begins with its own length."""
    size = len(key) + len(value) + 3
    length = size + len(b"%d" % size)
    return b"%d %s=%s\n" % (size + len(b"%d" % length), key, value)


def _block(kind: bytes, size: int, mode: int) -> bytes:
    """A header whose name is in the records before it."""
    fields = b"%07o\0%07o\0%07o\0%011o\0%011o\0" % (mode, 0, 0, size, 0)
    rest = kind + bytes(100) + b"ustar\00000" + bytes(64) + b"%07o\0%07o\0" % (0, 0)
    block = b"file".ljust(100, b"\0") + fields + b" " * 8 + rest
    return (block[:148] + b"%06o\0 " % sum(block) + block[156:]).ljust(BLOCK, b"\0")


def padding(size: int) -> bytes:
    """The padding that fills the last block of a file of that size."""
    return b"\0" * (-size % BLOCK)


@dataclass(slots=True)
class Member:
    """A file in an archive, or a part of one, with its content unless it is over the reader's limit."""

    name: str
    size: int
    """The bytes of the whole file."""
    content: bytearray = field(default_factory=bytearray)
    offset: int = 0
    """Where in the file the content begins."""
    attributes: bool = False
    """Whether the file has extended attributes, if the archive says so."""

    @property
    def ends(self) -> bool:
        """Whether the file ends with this content."""
        return self.offset + len(self.content) == self.size


class ArchiveReader:
    """Takes a tar stream in chunks of any size and yields its regular files; everything else in it is dropped.

    `limit` is the most bytes of one file that are kept; the `content` of a larger file stays empty. With `part`, files
    are yielded in parts as they come, of about so many bytes or of what is there.
    """

    def __init__(self, limit: int, part: int = 0) -> None:
        self._limit = limit
        self._part = part
        self._held = bytearray()
        self._member: Member | None = None
        self._left = 0
        self._pad = 0
        self._collected = b""
        """The kind of a header whose content describes the next file, while that is read."""
        self._described = _Described()
        self.malformed = False

    def feed(self, data: bytes) -> Iterator[Member]:
        """Takes the next bytes; yields the files that are now complete, and a file over the limit once it begins."""
        self._held += data
        while not self.malformed:
            if self._left or self._pad:
                if not self._held:
                    return
                yield from self._take_content()
            elif len(self._held) >= BLOCK:
                block = bytes(self._held[:BLOCK])
                del self._held[:BLOCK]
                yield from self._take_header(block)
            else:
                return
        self._held.clear()

    def _take_header(self, block: bytes) -> Iterator[Member]:
        if not block.strip(b"\0"):
            return
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError:
            self.malformed = True
            return
        self._collected = info.type if info.type in (_LONG_NAME, _EXTENDED) else b""
        if self._collected:
            if not 0 <= info.size <= (_NAME_MAX if self._collected == _LONG_NAME else _EXTENDED_MAX):
                self.malformed = True
                return
            self._member = Member("", info.size)
            self._left, self._pad = info.size, -info.size % BLOCK
            return
        known, self._described = self._described, _Described()
        size = info.size if known.size is None else known.size
        if size < 0:
            self.malformed = True
            return
        regular = info.type in _REGULAR
        self._member = Member(known.name or info.name, size, attributes=known.attributes) if regular else None
        # Links and devices have no content, whatever size they claim.
        self._left = (
            0
            if info.type
            in (tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE)
            else size
        )
        self._pad = -self._left % BLOCK
        if self._member is not None and (not size or size > self._limit):
            # An empty file is complete. A file that is too large is yielded now, because its content may never end.
            yield self._member
            self._member = None

    def _take_content(self) -> Iterator[Member]:
        if self._left:
            member = self._member
            taken = min(self._left, len(self._held))
            if member is not None:
                if self._part and not self._collected:
                    taken = min(taken, self._part)
                member.content += self._held[:taken]
            del self._held[:taken]
            self._left -= taken
            if self._left and member is not None and self._part and not self._collected:
                yield member
                offset = member.offset + len(member.content)
                self._member = Member(member.name, member.size, offset=offset, attributes=member.attributes)
            if self._left == 0 and member is not None:
                self._member = None
                if self._collected:
                    self._describe(bytes(member.content))
                else:
                    yield member
        skipped = min(self._pad, len(self._held)) if not self._left else 0
        del self._held[:skipped]
        self._pad -= skipped

    def _describe(self, content: bytes) -> None:
        if self._collected == _LONG_NAME:
            self._described.name = content.rstrip(b"\0").decode("utf-8", "surrogateescape")
            return
        at = 0
        while at < len(content) and not self.malformed:
            try:
                # Each record begins with its own length, and ends with a line end, which a value may contain too.
                digits, _, _ = content[at : at + 8].partition(b" ")
                record = content[at : at + int(digits)]
                key, is_there, value = record[len(digits) + 1 : -1].partition(b"=")
                if not is_there or not record.endswith(b"\n") or int(digits) != len(record):
                    raise ValueError
                if key == b"path":
                    self._described.name = value.decode("utf-8", "surrogateescape")
                elif key == b"size":
                    self._described.size = int(value)
                elif key.startswith(_ATTRIBUTE):
                    self._described.attributes = True
                at += len(record)
            except ValueError:
                self.malformed = True


@dataclass(slots=True)
class _Described:
    """What headers before that of a file say about it."""

    name: str = ""
    size: int | None = None
    attributes: bool = False
