"""Reads the parts of a saved session."""

from __future__ import annotations

import os
from mmap import ACCESS_READ, mmap
from pickle import UnpicklingError

_BLOCK = 1 << 20


class Stored:
    """The parts that the index names, by number."""

    def __init__(self, folder: str, parts: list) -> None:
        self._folder = f"{folder}/parts"
        self._parts = parts
        self._views: dict = {}
        self.moved = 0
        """Grows while a part is read."""

    def view(self, number: int) -> memoryview:
        """The content of a part, which is read where it is."""
        if number not in self._views:
            descriptor = self._open(number)
            try:
                view = memoryview(mmap(descriptor, 0, access=ACCESS_READ))
            finally:
                os.close(descriptor)
            self._views[number] = view
        return self._views[number]

    def load(self, number: int) -> bytearray:
        """A copy of the content of a part."""
        descriptor = self._open(number)
        content = bytearray(self._parts[number][1])
        view, at = memoryview(content), 0
        try:
            while at < len(view):
                read = os.preadv(descriptor, [view[at : at + _BLOCK]], at)
                if not read:
                    raise UnpicklingError("a part of it is damaged")
                at += read
                self.moved += 1
        finally:
            os.close(descriptor)
        return content

    def _open(self, number: int) -> int:
        name, size = self._parts[number]
        try:
            descriptor = os.open(f"{self._folder}/{name}", os.O_RDONLY)
        except OSError as error:
            raise UnpicklingError("a part of it is missing") from error
        if os.fstat(descriptor).st_size != size:
            os.close(descriptor)
            raise UnpicklingError("a part of it is damaged")
        return descriptor
