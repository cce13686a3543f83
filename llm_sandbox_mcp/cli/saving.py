"""Files that code made, written to a folder of this machine. Their names and contents come from inside a sandbox."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from ..errors import BadPath

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def save(folder: Path, name: str, content: bytes) -> None:
    """Writes a file below the folder, whole or not at all, in place of an older one of that name.

    Raises `BadPath` for a name that could lead out of the folder, and for a hidden one: code could plant what other
    programs obey, such as `.git/hooks`.
    """
    *parents, last = parts = name.split("/")
    if any(not part or part.startswith(".") or "\0" in part for part in parts):
        raise BadPath(f"{name!r} was not saved: the name is not a plain path below {folder}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Descriptors all the way down: no link below the folder is followed, whoever put it there.
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in parents:
                at = _descend(at, part)
            _write(at, last, content)
        finally:
            os.close(at)
    except OSError as error:
        raise BadPath(f"{name!r} was not saved in {folder}: {error.strerror}") from error


def _descend(at: int, part: str) -> int:
    with suppress(FileExistsError):
        os.mkdir(part, dir_fd=at)
    below = os.open(part, _FOLDER, dir_fd=at)
    os.close(at)
    return below


def _write(at: int, name: str, content: bytes) -> None:
    temporary = f".{secrets.token_hex(8)}.part"
    try:
        with os.fdopen(os.open(temporary, _NEW, 0o644, dir_fd=at), "wb") as file:
            file.write(content)
        os.rename(temporary, name, src_dir_fd=at, dst_dir_fd=at)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=at)
        raise
