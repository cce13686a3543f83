"""Tar streams, without any I/O: written for a `tar` inside a sandbox, and read from one that may be hostile."""

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

BLOCK = 512
_NAME_MAX = 4096
_REGULAR = (b"0", b"\0")
_LONG_NAME = b"L"
_MODE = 0o644
_EXECUTABLE_MODE = 0o755
_FOLDER_MODE = 0o755
END = b"\0" * (2 * BLOCK)
"""The end of an archive."""


def header(path: str, size: int, *, executable: bool = False) -> bytes:
    """The header of one regular file, after those of its folders.

    The archive contains the folders so that `tar` replaces a symbolic link in the path instead of following it.
    """
    blocks = b""
    for folder in reversed(PurePosixPath(path).parents):
        if folder.name:
            info = tarfile.TarInfo(str(folder))
            info.type, info.mode = tarfile.DIRTYPE, _FOLDER_MODE
            blocks += info.tobuf(tarfile.GNU_FORMAT)
    info = tarfile.TarInfo(path)
    info.size, info.mode = size, _EXECUTABLE_MODE if executable else _MODE
    return blocks + info.tobuf(tarfile.GNU_FORMAT)


def padding(size: int) -> bytes:
    """The padding that fills the last block of a file of that size."""
    return b"\0" * (-size % BLOCK)


@dataclass(slots=True)
class Member:
    """A file in an archive, with its content unless it is over the reader's limit."""

    name: str
    size: int
    content: bytearray = field(default_factory=bytearray)


class ArchiveReader:
    """Takes a tar stream in chunks of any size and yields its regular files; everything else in it is dropped.

    `limit` is the most bytes of one file that are kept; the `content` of a larger file stays empty.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = bytearray()
        self._member: Member | None = None
        self._left = 0
        self._pad = 0
        self._collect_name = False
        self._long_name: str | None = None
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
        size = info.size
        if size < 0:
            self.malformed = True
            return
        name, self._long_name = self._long_name or info.name, None
        self._collect_name = info.type == _LONG_NAME
        if self._collect_name and size > _NAME_MAX:
            self.malformed = True
            return
        regular = info.type in _REGULAR
        self._member = Member(name, size) if regular or self._collect_name else None
        # Links and devices have no content, whatever size they claim.
        self._left = (
            0
            if info.type
            in (tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE)
            else size
        )
        self._pad = -self._left % BLOCK
        if regular and self._member is not None and (not size or size > self._limit):
            # An empty file is complete. A file that is too large is yielded now, because its content may never end.
            yield self._member
            self._member = None

    def _take_content(self) -> Iterator[Member]:
        if self._left:
            member = self._member
            taken = min(self._left, len(self._held))
            if member is not None:
                member.content += self._held[:taken]
            del self._held[:taken]
            self._left -= taken
            if self._left == 0 and member is not None:
                self._member = None
                if self._collect_name:
                    self._long_name = bytes(member.content).rstrip(b"\0").decode("utf-8", "surrogateescape")
                else:
                    yield member
        skipped = min(self._pad, len(self._held)) if not self._left else 0
        del self._held[:skipped]
        self._pad -= skipped
