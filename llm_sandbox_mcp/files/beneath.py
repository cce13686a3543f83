"""Files below a folder on this machine, opened by descriptors: no link on the way is followed, however new it is."""

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_TOP = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FOLDER = _TOP | os.O_NOFOLLOW
# O_NONBLOCK: a FIFO must not block the thread that opens it.
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def open_folder(top: Path, below: Sequence[str] = (), *, make: bool = False) -> Iterator[int]:
    """A descriptor of the folder that the names `below` lead to; `make` creates missing folders. Raises `OSError`."""
    at = os.open(top, _TOP)
    try:
        for name in below:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=at)
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
    """Writes a whole file, or nothing, into an open folder; replaces what had its name. Raises `OSError`."""
    # A name that cannot be guessed and must be new: whoever can write to the folder could plant a link there.
    temporary = f".{secrets.token_hex(8)}.part"
    try:
        with os.fdopen(os.open(temporary, _NEW, 0o644, dir_fd=folder), "wb") as file:
            file.write(content)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        raise
