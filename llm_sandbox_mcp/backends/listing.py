"""Commands that list the files and missing programs of a sandbox from inside."""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from ..base.text import is_text
from .layout import FIGURES, HANDLERS, HOME, WORKDIR

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

Files = Mapping[str, Stamp]
"""Regular files below a folder."""

_FORM = r"%y %m %i %s %T@ %C@ %P\0"
OUTSIDE = (HOME, "/tmp")
"""The folders besides the working directory in which code leaves files."""
_ENDS = "png jpg jpeg gif webp svg bmp tif tiff pdf csv tsv xlsx xls ods parquet html docx pptx mp4"
"""How the names of files end that people want to get: pictures, tables, documents."""
_TEXTS = "json jsonl md txt zip"
"""The same in /tmp; elsewhere, programs keep their own files of these kinds."""
_TEMPORARY = r"(?:tmp[a-z0-9_]{8}|tmp\.\w{10}|Rtmp\w{6}|file\w{6})(?:[./]|$)"
"""A name that Python, mktemp, R or Chromium chooses for a temporary file or folder."""
_KEPT = re.compile(
    rf"(?:(?:{'|'.join(OUTSIDE)})/(?!{_TEMPORARY}|\.).+\.(?:{_ENDS.replace(' ', '|')})"
    rf"|/tmp/(?!{_TEMPORARY}|\.).+\.(?:{_TEXTS.replace(' ', '|')}))",
    re.IGNORECASE | re.DOTALL,
)


def kept_outside(path: str) -> bool:
    """Whether a file outside of the working directory looks like one that code made for somebody to have."""
    return _KEPT.fullmatch(path) is not None and not path.startswith(f"{FIGURES}/") and is_text(path)


SEEN = f"{HANDLERS}/.seen"
"""A file as old as the last look at these folders, in sandboxes that an agent looks into."""
LIST_OUTSIDE = (
    f"find {' '.join(OUTSIDE)} -mindepth 1 -maxdepth 2 -newer {SEEN} -name '*.*' -type f -printf '%p\\0' "
    f"| head -z -n 1000; : >{SEEN}"
)
"""A shell command that prints the paths of the files that are new there since then."""

LIST = (
    rf"find {WORKDIR} -mindepth 1 \( -name '.*' -o -name node_modules -o -name __pycache__ \) -prune -o "
    rf"-type f -printf '{_FORM}' | head -z -n 10000"
)
"""A shell command that prints the files of the working directory for `read_list`."""

_TREE = (
    r"""date +%s.%N | tr '\n' '\0'; printf '%s\0' "$map"; """
    r"""find /proc/[0-9]*/fd -perm -200 -lname '{0}/*' -printf '%l\0' | sed -zn 's|^{0}/|> |p'; """
    rf"find {{0}} -mindepth 1 -name '.*' -printf '%i %P\0' -prune -o -printf '{_FORM}'; printf '%d end\0' $?"
)
_MAPPED = r"map=$(sed -n 's|^[^ ]* .w.s .* {0}/||p' /proc/[0-9]*/maps); "
_SAME = (
    r"""if [ -z "$map" ] && [ "$(date +%s)" -ge {1} ] """
    r"""&& new=$(find {0} -name '.*' -prune -o -newerct @{1}.{2:09} -printf x -quit) """
    r"""&& [ -z "$new" ]; then printf '0 same\0'; else {3}; fi"""
)
SAME = b"0 same\0"
"""The output of `tree_command` if nothing has changed."""
_MARGIN = 10**8
"""Nanoseconds: a kernel's times of files can be a little behind its clock."""
_RECORD = re.compile(
    rb"([a-zA-Z]) ([0-7]{1,4}) (\d{1,20}) (\d{1,19}) (-?\d{1,20}\.\d{1,10}) (-?\d{1,20}\.\d{1,10}) "
    rb"([^./][^/]*(?:/[^./][^/]*)*)",
    re.DOTALL,
)
"""What code may have written in the name of `find`: nothing that leads out of the folder, nothing hidden."""
_HIDDEN = re.compile(rb"(\d{1,20}) ((?:[^./][^/]*/)*(?!\.\.\Z)\.[^/]+)", re.DOTALL)
"""The record of a hidden file or folder."""
_HELD = b"> "
"""The start of the record of a file that a process has open for writing."""
_REMEMBERED = 256
"""Bytes of a record that is kept, so that all of them together are bounded."""


class Listed(NamedTuple):
    """What is below a folder in a sandbox. Code of the same user can forge it, but not lead out of the folder by it."""

    time: int
    """When the list was made, in nanoseconds."""
    tree: Tree
    mapped: frozenset[str]
    """Files that processes can change through their memory, which changes none of their numbers."""
    folders: Mapping[str, int]
    """The inode of each folder."""
    hidden: Mapping[str, int]
    """The inode of each hidden file, and of each hidden folder without what is in it."""
    held: frozenset[str]
    """Files that processes have open for writing."""


def tree_command(folder: str, since: int = 0) -> str:
    """A shell command that prints everything below a folder for `read_tree`, and only the names of hidden things.

    If nothing has changed `since` the time of an earlier list, it prints only that: this takes half the time. What is
    removed or moved changes its folder. Code cannot set the times that count (ctime); if the clock was set back to
    before that time, everything is printed.
    """
    command = _TREE.format(folder)
    if since:
        command = _SAME.format(folder, *divmod(since - _MARGIN, 10**9), command)
    return _MAPPED.format(folder) + command


def read_tree(output: bytes) -> Listed | None:
    """What is in the output of `tree_command`.

    None unless the command read everything, all of its output is here, and each record has its form. Names that are not
    UTF-8 have lone surrogates.
    """
    time, mapped, *records, end, rest = (output if output.count(b"\0") > 2 else b"\0\0\0").split(b"\0")
    if end != b"0 end" or rest or not _TIME.fullmatch(time):
        return None
    tree: dict[str, Entry] = {}
    folders: dict[str, int] = {}
    hidden: dict[str, int] = {}
    held: set[str] = set()
    for record in records:
        if record.startswith(_HELD):
            held.update(mapped_names([record.removeprefix(_HELD)]))
            continue
        try:
            name, entry, inode = _known_record(record) if len(record) <= _REMEMBERED else _read_record(record)
        except ValueError:
            if not (found := _HIDDEN.fullmatch(record)):
                return None
            hidden[os.fsdecode(found[2])] = int(found[1])
            continue
        tree[name] = entry
        if entry is FOLDER:
            folders[name] = inode
    opened = frozenset(mapped_names(mapped.split(b"\n")))
    return Listed(_nanoseconds(time), tree, opened, folders, hidden, frozenset(held))


def mapped_names(lines: Iterable[bytes]) -> Iterator[str]:
    """The names of files in lines of the kernel's `maps`, where a line end in a name has another form."""
    for line in filter(None, lines):
        yield os.fsdecode(line.removesuffix(b" (deleted)"))
        yield os.fsdecode(line.replace(b"\\012", b"\n"))


def _read_record(record: bytes) -> tuple[str, Entry, int]:
    """The name, what has it, and its inode."""
    found = _RECORD.fullmatch(record)
    if found is None:
        raise ValueError
    kind, mode, inode, size, mtime, ctime, name = found.groups()
    if kind == b"d":
        return os.fsdecode(name), FOLDER, int(inode)
    stamp = Stamp(int(inode), int(size), _nanoseconds(mtime), _nanoseconds(ctime))
    return os.fsdecode(name), Entry(kind.decode(), int(mode, 8), stamp), stamp.inode


# Most records of a list are those of the last one, and reading one takes ten times as long as finding it here.
_known_record = lru_cache(1 << 15)(_read_record)


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
        with suppress(ValueError):
            name, entry, _ = _read_record(record)
            if is_text(name):
                files[name] = entry.stamp
    return files
