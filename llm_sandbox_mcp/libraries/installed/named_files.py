"""The files that pages of package indexes name, which sandboxes can therefore request, in a limited memory."""

import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

EACH = 32 << 20
"""Maximum bytes for one installation: about 80,000 files; the oldest are forgotten."""
ALL = 128 << 20
"""Maximum bytes for all installations of a server; the one that has most forgets first."""
_OVERHEAD = 250
"""Bytes of memory that a file takes beside its URL."""


class NamedFiles:
    """The URLs of files that the pages of one index have named, by tokens that sandboxes cannot guess."""

    def __init__(self, room: "Room") -> None:
        self._room = room
        self._secret = secrets.token_bytes(16)
        self._urls: dict[str, bytes] = {}
        self.size = 0

    def add(self, url: str) -> str:
        """Keeps a URL and returns its token, always the same one; `ValueError` for text that is no Unicode."""
        content = url.encode()
        token = hashlib.blake2b(content, digest_size=16, key=self._secret).hexdigest()
        if token not in self._urls:
            self._urls[token] = content
            self.size += len(content) + _OVERHEAD
            self._room.taken += len(content) + _OVERHEAD
            self._room.limit(self)
        return token

    def find(self, token: str) -> str | None:
        """The URL with this token, if it is still kept."""
        content = self._urls.get(token)
        return None if content is None else content.decode()

    def forget_oldest(self) -> None:
        size = len(self._urls.pop(next(iter(self._urls)))) + _OVERHEAD
        self.size -= size
        self._room.taken -= size


class Room:
    """The memory that the files of all installations of a server take together."""

    def __init__(self) -> None:
        self.taken = 0
        self._open: set[NamedFiles] = set()

    @contextmanager
    def open(self) -> Iterator[NamedFiles]:
        """Has place for the files of one more installation."""
        files = NamedFiles(self)
        self._open.add(files)
        try:
            yield files
        finally:
            self._open.discard(files)
            self.taken -= files.size

    def limit(self, grown: NamedFiles) -> None:
        """Lets installations forget files until all have room."""
        while grown.size > EACH:
            grown.forget_oldest()
        while self.taken > ALL:
            max(self._open, key=lambda files: files.size).forget_oldest()
