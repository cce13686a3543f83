"""Writes files that code made to a folder of this machine. Their names and contents come from inside a sandbox."""

from pathlib import Path

from ..base.errors import BadPath
from ..files.beneath import InTheWay, open_folder
from ..files.drafts import NotOwned, write_file


def save(folder: Path, name: str, content: bytes) -> None:
    """Writes a file below the folder, completely or not at all, and replaces an older file of that name.

    Raises `BadPath` for a name that something else has, such as a link; for one that could lead out of the folder; and
    for a hidden name: code could otherwise plant files that other programs execute, such as `.git/hooks`.
    """
    *parents, last = parts = name.split("/")
    if any(not part or part.startswith(".") or "\0" in part for part in parts):
        raise BadPath(f"{name!r} was not saved: the name is not a plain path below {folder}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open_folder(folder, parents, make=True) as below:
            write_file(below, last, content)
    except InTheWay as error:
        reason = "it is a link, a pipe, a device or a folder there, and is not replaced"
        raise BadPath(f"{name!r} was not saved in {folder}: {reason}") from error
    except NotOwned as error:
        reason = "it belongs to another user there, and its owner cannot be kept"
        raise BadPath(f"{name!r} was not saved in {folder}: {reason}") from error
    except OSError as error:
        raise BadPath(f"{name!r} was not saved in {folder}: {error.strerror}") from error
