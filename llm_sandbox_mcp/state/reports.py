"""What the packing of a session says: what became of its variables, and which files are left out."""

from collections.abc import Collection
from dataclasses import dataclass, field

from anyio.abc import ByteReceiveStream

from ..backends.layout import LIBRARIES
from ..base.results import Missing
from ..base.text import one_line
from .changes import FOLDER, Changes

_REPORTS_MAX, _LINES_MAX = 256 << 10, 2000
"""Bytes, and lines, of all reports that are read."""
_FIELD_MAX = 200
_DIGITS = 10
_SHOWN_MAX, _NOTES_MAX = 1000, 20
"""Things that could not be saved, and notes, at most."""
_LINE_MAX = 16 << 10
"""Bytes of a line of `tar`: longer than any path with its reason."""
_TAR, _END, BROKEN = b"tar: ", b"Exiting with failure status", b"not recoverable"
"""How `tar` begins what it says, how it ends it if some files failed, and if all did."""
_FIND, _RM = b"find: ", b"rm: cannot remove "
_OWN, _REPORTED = FOLDER.removeprefix("/").encode(), f"{FOLDER}/".encode()
_LIBRARIES, _LANGUAGES = f"{LIBRARIES.removeprefix('/')}/".encode(), 100
"""Where libraries are, in a folder for each language, and how many there can be."""
_LEFT_OUT = {"socket ignored": "it is a socket"}


@dataclass(slots=True)
class Report:
    """What became of the variables of one language."""

    kept: int | None = None
    """How many were saved or opened; None if that did not come to its end."""
    missing: list[Missing] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Packed:
    """What was packed."""

    reports: dict[str, Report] = field(default_factory=dict)
    """What became of the variables of each language."""
    files: int = 0
    """Files and folders."""
    libraries: Collection[str] = ()
    """The languages that have libraries among the files."""
    missing: list[Missing] = field(default_factory=list)
    """Files that were not packed."""
    changes: Changes | None = None
    """What had changed, if only that was packed."""


class Failed:
    """What `tar` says of files that it cannot read or write."""

    def __init__(self) -> None:
        self._found: list[Missing] = []
        self._more = 0

    def add(self, line: bytes) -> None:
        """Takes a line, which may say something else."""
        for other in (_FIND, _RM):
            if line.startswith(other):
                line = _TAR + line.removeprefix(other).replace(b"'", b"")
        if line.startswith(_TAR + _OWN):
            return
        if not line.startswith(_TAR) or _END in line:
            return
        if len(self._found) >= _SHOWN_MAX:
            self._more += 1
            return
        text = one_line(line.removeprefix(_TAR).decode(errors="replace"))
        name, _, reason = text.rpartition(": ")
        self._found.append(Missing("", f"/{name}"[:_FIELD_MAX], "", _LEFT_OUT.get(reason, reason)[:_FIELD_MAX]))

    def missing(self) -> list[Missing]:
        """The files, and how many more there are."""
        more = [Missing("", f"{self._more} more", "", "not named here")] if self._more else []
        return self._found + more


class Listing:
    """Reads what the packing says: the reports, then a line for each file, and others about what is left out."""

    def __init__(self, languages: Collection[str]) -> None:
        self._languages = languages
        self._files = 0
        self._libraries = set[bytes]()
        self._failed = Failed()
        self._rest = b""
        self._reports = {f"{FOLDER}/{language}/report".encode(): bytearray() for language in languages}
        self._report = bytearray()
        self._reported = False
        self._size = 0

    async def read(self, stream: ByteReceiveStream) -> None:
        """Reads to the end; code can have written all of it."""
        async for chunk in stream:
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            self._rest = self._rest[:_LINE_MAX]
            for line in lines:
                if self._reported:
                    self._failed.add(line)
                    self._files += not line.startswith((_TAR, _FIND, _OWN))
                    if line.startswith(_LIBRARIES) and len(self._libraries) < _LANGUAGES:
                        self._libraries.add(line.removeprefix(_LIBRARIES).partition(b"/")[0])
                else:
                    self._take_report(line)

    def end(self, packed: Packed) -> None:
        """Takes down what was packed; it takes long."""
        for language, text in zip(self._languages, self._reports.values(), strict=True):
            packed.reports[language] = parse_report(language, bytes(text))
        packed.files, packed.missing = self._files, self._failed.missing()
        packed.libraries = sorted(name.decode(errors="replace")[:_FIELD_MAX] for name in self._libraries if name)

    def _take_report(self, line: bytes) -> None:
        if line == _REPORTED:
            self._reported = True
        elif line in self._reports:
            self._report = self._reports[line]
        elif (size := self._size + len(line) + 1) < _REPORTS_MAX:
            self._size = size
            self._report += line + b"\n"


def parse_report(language: str, text: bytes) -> Report:
    """A report, which code can have written."""
    report = Report()
    lines = text[:_REPORTS_MAX].split(b"\n")
    for line in lines[: _LINES_MAX - 1] + lines[_LINES_MAX - 1 :][-2:]:
        kind, *fields = (one_line(part)[:_FIELD_MAX] for part in line.decode(errors="replace").split("\t", 4))
        match kind, fields:
            case "kept", [number] if number.isascii() and number.isdigit() and len(number) < _DIGITS:
                report.kept = int(number)
            case "lost", [name, kind, reason] if len(report.missing) < _SHOWN_MAX:
                report.missing.append(Missing(language, name, kind, reason))
            case "note", [note] if len(report.notes) < _NOTES_MAX:
                report.notes.append(note)
    return report
