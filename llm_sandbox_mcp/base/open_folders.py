"""Folders of this machine that the operator opens to callers: `FOLDER` or `FOLDER:ro` for reading, `FOLDER:rw`
also for writing, `FOLDER:rwd` also for deleting and moving.

Code sees each of them in its sandbox, as a `View`.
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .messages import Problem

_READABLE, _WRITABLE, _DELETABLE = ":ro", ":rw", ":rwd"
_NEARLY = re.compile(r".*:[rwoxd]{1,3}", re.IGNORECASE | re.DOTALL)
_ODD = re.compile(r"[^\w.-]+")
"""What names in the sandbox do not contain: code would have to quote them."""


@dataclass(frozen=True, slots=True)
class OpenFolder:
    """A folder with everything below it."""

    path: str
    """Absolute."""
    writable: bool = False
    deletes: bool = False
    """Whether code also deletes and moves files in it; only if it is `writable`."""

    @classmethod
    def parse(cls, text: str, *, beside: str = "") -> "OpenFolder":
        """The folder that an operator wrote down; raises `ValueError` if it is not absolute, or the end is misspelt.

        `beside` is the folder that relative ones are in; without it, they are refused.
        """
        end = next((end for end in (_READABLE, _WRITABLE, _DELETABLE) if text.endswith(end)), "")
        named = os.path.expanduser(text.removesuffix(end))
        path = os.path.join(beside, named) if named else ""
        if _NEARLY.fullmatch(path):
            raise ValueError(
                "must end with :ro or nothing if it is open for reading, with :rw if also for writing, with :rwd if "
                f"also for deleting and moving; got {text!r}"
            )
        if not os.path.isabs(path):
            raise ValueError(f"must be absolute; {path!r} is not")
        return cls(os.path.normpath(path), end in (_WRITABLE, _DELETABLE), end == _DELETABLE)

    @property
    def problem(self) -> Problem | None:
        """Why the user of this process cannot use the folder as it is open, and what to do; None if they can."""
        if not os.path.isdir(self.path):
            return Problem(f"{self.path} is not a folder", "make it, or correct the path")
        if not os.access(self.path, os.R_OK | os.X_OK):
            return Problem(f"{self.path} cannot be read", "allow this user to read it")
        if not self.writable or os.access(self.path, os.W_OK):
            return None
        if os.statvfs(self.path).f_flag & os.ST_RDONLY:
            return Problem(
                f"{self.path} is on a read-only file system", "mount that for writing, or open it only for reading"
            )
        return Problem(f"{self.path} cannot be written", "allow this user to write it, or open it only for reading")

    def __str__(self) -> str:
        return self.path + (_DELETABLE if self.deletes else _WRITABLE if self.writable else "")


@dataclass(frozen=True, slots=True)
class View:
    """An open folder as code sees it."""

    place: str
    """Where it is in the sandbox."""
    folder: OpenFolder


def views_of(folders: Iterable[OpenFolder], top: str) -> Iterator[View]:
    """The view of each folder below `top`, under the folder's own name, with a number if an earlier one has it."""
    places: set[str] = set()
    for folder in dict.fromkeys(folders):
        name = _ODD.sub("-", os.path.basename(folder.path)).strip("-.") or "folder"
        same = (f"{top}/{name}{number}" for number in ("", *(f"-{count}" for count in range(2, len(places) + 3))))
        place = next(place for place in same if place not in places)
        places.add(place)
        yield View(place, folder)
