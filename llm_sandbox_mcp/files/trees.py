"""A folder of this machine with everything below it, read file by file: no link is followed, however new it is."""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from ..backends import archive
from .beneath import open_file, open_folder

_PART = 1 << 20


def list_tree(top: str, *, files: int, size: int) -> list[str]:
    """The relative paths of the regular files below a folder. Raises `OSError`.

    Leaves out hidden files and folders, other file systems, and names that are not UTF-8. Raises `OverflowError` if
    there are more files than `files`, or more bytes than `size`.
    """
    found: list[str] = []
    device = os.stat(top).st_dev
    for root, folders, names, folder in os.fwalk(top):
        below = os.path.relpath(root, top)
        states = {name: state for name in (*folders, *names) if (state := _state(name, folder))}
        folders[:] = [name for name in folders if name in states and states[name].st_dev == device]
        for name in names:
            if name in states and stat.S_ISREG(states[name].st_mode):
                found.append(os.path.normpath(os.path.join(below, name)))
                size -= states[name].st_size
        if len(found) > files or size < 0:
            raise OverflowError
    return found


def pack(top: str, paths: Sequence[str]) -> Iterator[bytes]:
    """A tar archive of these files, in parts that are not empty; files that are gone or cannot be read are left out."""
    for path in paths:
        *below, name = path.split("/")
        with (
            suppress(OSError),
            open_folder(Path(top), below) as folder,
            os.fdopen(open_file(folder, name), "rb") as file,
        ):
            state = os.fstat(file.fileno())
            if stat.S_ISREG(state.st_mode):
                yield archive.header(path, state.st_size)
                yield from _content(file, state.st_size)
    yield archive.END


def _content(file: BinaryIO, size: int) -> Iterator[bytes]:
    """So many bytes of a file, and their padding; zeros if it has become shorter."""
    left = size
    while left:
        part = file.read(min(left, _PART)) or bytes(min(left, _PART))
        left -= len(part)
        yield part
    if size % archive.BLOCK:
        yield archive.padding(size)


def _state(name: str, folder: int) -> os.stat_result | None:
    """What a name in a folder is; None for what is left out."""
    if name.startswith(".") or (not name.isascii() and any("\ud800" <= character <= "\udfff" for character in name)):
        return None
    with suppress(OSError):
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    return None
