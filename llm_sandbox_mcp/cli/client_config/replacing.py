"""Replaces a person's file, and keeps what was in it."""

import os
import stat
import tempfile
from contextlib import suppress
from itertools import chain, count
from pathlib import Path


def replace(path: Path, content: bytes, older: bytes | None) -> Path | None:
    """Writes a file completely or not at all; returns the path of the copy of its older content, if it has any.

    The file keeps its owner and mode; a new one is only for this user. Folders that are missing are made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    copy = known = None
    if older is not None:
        known = path.stat()
        copy = _kept(path, older, stat.S_IMODE(known.st_mode))
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if known:
                os.fchmod(descriptor, stat.S_IMODE(known.st_mode))
                with suppress(PermissionError):  # the file of another user, whose folder this user may write
                    os.fchown(descriptor, known.st_uid, known.st_gid)
            os.fsync(descriptor)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink()
        raise
    return copy


def _kept(path: Path, content: bytes, mode: int) -> Path:
    """A copy under a name that is free: `NAME.bak`, `NAME.bak.1` and so on."""
    names = chain([f"{path.name}.bak"], (f"{path.name}.bak.{number}" for number in count(1)))
    while True:
        copy = path.with_name(next(names))
        with suppress(FileExistsError):
            descriptor = os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
            with open(descriptor, "wb") as file:
                file.write(content)
            return copy
