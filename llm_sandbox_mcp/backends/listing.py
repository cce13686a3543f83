"""Commands that list the files and missing programs of a sandbox from inside."""

import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from .layout import WORKDIR

_TIME = re.compile(rb"\d{1,12}\.\d{9}")


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

_TREE = (
    r"date +%s.%N | tr '\n' '\0'; "
    r"find {0} -mindepth 1 -name '.*' -prune -o -printf '%y %m %i %s %T@ %C@ %P\0'; printf '%d end\0' $?"
)
_SAME = r"""if [ "$(date +%s)" -ge {1} ] && new=$(find {0} -name '.*' -prune -o -newerct @{1}.{2:09} -printf x -quit) \
&& [ -z "$new" ]; then printf '0 same\0'; else {3}; fi""".replace("\\\n", "")
SAME = b"0 same\0"
"""The output of `tree_command` if nothing has changed."""
_MARGIN = 10**8
"""Nanoseconds: a kernel's times of files can be a little behind its clock."""


def tree_command(folder: str, since: int = 0) -> str:
    """A shell command that prints everything below a folder for `read_tree`, but hidden files and folders.

    If nothing has changed `since` the time of an earlier list, it prints only that: this takes half the time. What is
    removed or moved changes its folder. Code cannot set the times that count (ctime); if the clock was set back to
    before that time, everything is printed.
    """
    command = _TREE.format(folder)
    return _SAME.format(folder, *divmod(since - _MARGIN, 10**9), command) if since else command


def read_tree(output: bytes) -> tuple[int, Tree] | None:
    """When the list was made, in nanoseconds, and what is in it.

    None unless the command read everything and all of its output is here. Names that are not UTF-8 have lone
    surrogates.
    """
    time, *records, end, rest = (output if output.count(b"\0") > 1 else b"\0\0").split(b"\0")
    if end != b"0 end" or rest or not _TIME.fullmatch(time):
        return None
    try:
        return _nanoseconds(time), dict(map(_read_record, records))
    except ValueError:
        return None


# Most records of a list are those of the last one, and reading one takes ten times as long as finding it here.
@lru_cache(1 << 16)
def _read_record(record: bytes) -> tuple[str, Entry]:
    kind, mode, inode, size, mtime, ctime, name = record.split(b" ", 6)
    if kind == b"d":
        return os.fsdecode(name), FOLDER
    stamp = Stamp(int(inode), int(size), _nanoseconds(mtime), _nanoseconds(ctime))
    return os.fsdecode(name), Entry(kind.decode(), int(mode, 8), stamp)


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
