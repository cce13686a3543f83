"""Commands that list the files and missing programs of a sandbox from inside."""

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from .layout import WORKDIR


class Stamp(NamedTuple):
    """Numbers of a file that differ after it is changed."""

    inode: int
    size: int
    mtime: int
    """In nanoseconds, like `ctime`."""
    ctime: int

    @classmethod
    def of(cls, state: os.stat_result) -> "Stamp":
        """The numbers of a file that the kernel described."""
        return cls(state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)


class Entry(NamedTuple):
    """What has a name below a folder."""

    kind: str
    """`f` for a regular file, `d` for a folder, another letter for anything else, as GNU find has them."""
    mode: int
    """Its twelve permission bits; 0 for a folder."""
    stamp: Stamp
    """Zeros for a folder: a folder only exists."""

    @classmethod
    def of(cls, state: os.stat_result) -> "Entry":
        """What the kernel described."""
        if stat.S_ISDIR(state.st_mode):
            return FOLDER
        kind = "f" if stat.S_ISREG(state.st_mode) else "l" if stat.S_ISLNK(state.st_mode) else "o"
        return cls(kind, stat.S_IMODE(state.st_mode), Stamp.of(state))


FOLDER = Entry("d", 0, Stamp(0, 0, 0, 0))

Tree = Mapping[str, Entry]
"""What is below a folder, by its path there."""

Files = Mapping[str, tuple[int, ...]]
"""Regular files below a folder, each with numbers that differ after the file is changed."""


def list_command(folder: str) -> str:
    """A shell command that prints the files below a folder for `read_list`."""
    return (
        rf"find {folder} -mindepth 1 \( -name '.*' -o -name node_modules -o -name __pycache__ \) -prune -o "
        r"-type f -printf '%C@ %T@ %s %i %P\0' | head -z -n 10000"
    )


LIST = list_command(WORKDIR)

_TREE = r"find {0} -mindepth 1 -name '.*' -prune -o -printf '%y %m %i %s %T@ %C@ %P\0'; printf '%d end\0' $?"


def tree_command(folder: str) -> str:
    """A shell command that prints everything below a folder for `read_tree`, but hidden files and folders."""
    return _TREE.format(folder)


def read_tree(output: bytes) -> Tree | None:
    """What is in the output of `tree_command`; None unless the command read everything and all of its output is here.

    Names that are not UTF-8 have lone surrogates.
    """
    *records, end, rest = (b"\0\0" + output).split(b"\0")
    if end != b"0 end" or rest:
        return None
    found = {}
    for record in records[2:]:
        try:
            kind, mode, inode, size, mtime, ctime, name = record.split(b" ", 6)
            stamp = Stamp(int(inode), int(size), _nanoseconds(mtime), _nanoseconds(ctime))
            entry = FOLDER if kind == b"d" else Entry(kind.decode(), int(mode, 8), stamp)
        except ValueError:
            return None
        found[os.fsdecode(name)] = entry
    return found


def _nanoseconds(text: bytes) -> int:
    """Seconds with a fraction, as GNU find prints them, in nanoseconds."""
    seconds, _, fraction = text.partition(b".")
    return int(seconds) * 10**9 + int(fraction[:9].ljust(9, b"0"))


MISSING = 'for program; do command -v "$program" >/dev/null || echo "$program"; done'
"""A shell command that prints which of its arguments, names of programs, it does not find."""


def read_list(output: bytes) -> Files:
    """The files in the output of `LIST`; ignores malformed records and names that are not UTF-8."""
    files = {}
    for record in output.split(b"\0")[:-1]:
        *stamp, name = record.split(b" ", 4)
        with suppress(ValueError):
            files[name.decode()] = tuple(int(part.replace(b".", b"")) for part in stamp)
    return files
