"""Folders of this machine that the operator opens to callers: `FOLDER` for reading, `FOLDER:rw` also for writing."""

import os
import re
from dataclasses import dataclass

_WRITABLE, _READABLE = ":rw", ":ro"
_NEARLY = re.compile(r":[rwox]{1,2}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class OpenFolder:
    """A folder with everything below it."""

    path: str
    """Absolute."""
    writable: bool = False

    @classmethod
    def parse(cls, text: str, *, beside: str = "") -> "OpenFolder":
        """The folder that an operator wrote down; raises `ValueError` if it is not absolute, or the end is misspelt.

        `beside` is the folder that relative ones are in; without it, they are refused.
        """
        writable = text.endswith(_WRITABLE)
        named = os.path.expanduser(text.removesuffix(_WRITABLE if writable else _READABLE))
        path = os.path.join(beside, named) if named else ""
        if _NEARLY.fullmatch(path[-3:]) or _NEARLY.fullmatch(path[-2:]):
            raise ValueError(f"must end with :rw if it is open for writing, and with nothing for reading; got {text!r}")
        if not os.path.isabs(path):
            raise ValueError(f"must be absolute; {path!r} is not")
        return cls(os.path.normpath(path), writable)

    def __str__(self) -> str:
        return self.path + (_WRITABLE if self.writable else "")
