"""Packs what a session has into a stream, and unpacks it in another sandbox, with the tools of these sandboxes.

What comes out of a sandbox is passed on as it is, and is never read outside of one.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from anyio.abc import ByteReceiveStream

from ..aio.tasks import open_tasks
from ..backends import copying
from ..backends.base import Sandbox, feed
from ..backends.layout import HOME, LIBRARIES, PATH, WORKDIR
from ..backends.patience import seconds_for_bytes
from ..base.errors import BadState, Unavailable
from ..base.results import Missing
from ..base.text import one_line
from ..base.units import format_size

FOLDER = "/tmp/.state"
"""Where variables are while they are saved or opened, in a folder for each language; gone afterwards."""
_REPORTS_MAX = 1 << 20
"""Bytes of all reports that are read."""
_TOLD = 1 << 20
_FIELD_MAX = 200
_DIGITS = 10
_SHOWN_MAX, _NOTES_MAX = 1000, 20
"""Things that could not be saved, and notes, at most."""
_LINE_MAX = 16 << 10
"""Bytes of a line of `tar`: longer than any path with its reason."""
_TAR, _END = b"tar: ", b"Exiting with failure status"
_OWN = FOLDER.removeprefix("/").encode()
_LEFT_OUT = {"socket ignored": "it is a socket"}
_SECONDS = 30.0
"""Seconds for packing or unpacking, and longer for the bytes that there can be."""
_STEP = "stop the processes that the code left running, and try again"

_PACK = """\
folder=$1
shift
for report in "$folder"/*/report; do
  [ ! -f "$report" ] || { echo "$report"; cat "$report"; echo; } >&2
done
echo >&2
cd / && tar -c -v -f - --format=posix --pax-option=delete=atime,delete=ctime --sparse -- "$@"
code=$?
rm -rf -- "$folder"
exit $code
"""
"""Its standard error has each report after its path, until an empty line after another, and then what `tar` says."""
_TAKE_REPORT = 'cat -- "$1/report" && rm -rf -- "$1" && { rmdir -- "${1%/*}" 2>/dev/null || :; }'
_UNPACK = f"""\
cd / && tar -x -p -f - --no-same-owner --skip-old-files --delay-directory-restore || exit
rmdir {FOLDER} 2>/dev/null
ls {LIBRARIES} 2>/dev/null || :
"""
"""What the sandbox has already, its interpreters made for themselves."""

Take = Callable[[bytes], Awaitable[None]]
Content = Callable[[], AsyncIterator[bytes]]
"""The stream that was packed, from its start at each call."""


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
    missing: list[Missing] = field(default_factory=list)
    """Files that were not packed."""


async def make_folders(sandbox: Sandbox, languages: Iterable[str]) -> None:
    """Makes the folders for the variables of these languages."""
    folders = [f"{FOLDER}/{language}" for language in languages]
    async with copying.in_time(sandbox, "saving") as tools:
        done = await tools.run(("mkdir", "-p", "-m", "700", "--", FOLDER, *folders))
    if done.exit_code:
        raise Unavailable(f"/tmp of the sandbox cannot be written: {copying.first_line(done.stderr)}", _STEP)


async def take_report(sandbox: Sandbox, language: str) -> Report:
    """What became of the variables of a language; if there is a report, all that was saved of them is removed."""
    async with copying.in_time(sandbox, "opening") as tools:
        done = await tools.run(("sh", "-c", _TAKE_REPORT, "sh", f"{FOLDER}/{language}"))
    return _parse(language, done.stdout.split(b"\n"))


async def remove_folders(sandbox: Sandbox) -> None:
    """Removes the folders for variables, after a failure."""
    async with copying.in_time(sandbox, "removing what was saved") as tools:
        await tools.run(("rm", "-rf", "--", FOLDER))


async def pack(sandbox: Sandbox, take: Take, *, tmp: bool) -> Packed:
    """Passes on the session's files, with the folders for variables, which are gone then; with `tmp`, also /tmp.

    Raises `Unavailable` if it does not come to its end. The stream can be no longer than what the folders can hold.
    """
    paths = [WORKDIR, HOME, "/tmp" if tmp else FOLDER]
    argv = ("sh", "-c", _PACK, "sh", FOLDER, *(path.removeprefix("/") for path in paths))
    listing, left = _Listing(), 2 * len(paths) * sandbox.policy.disk
    async with (
        _unhurried(sandbox, "saving the files") as tools,
        await sandbox.spawn(argv, {"PATH": PATH}, closes_input=True) as process,
        open_tasks() as tasks,
    ):
        tasks.start_soon(listing.read, process.stderr)
        await feed(process.stdin, None)
        async for chunk in _told(process.stdout, tools):
            if (left := left - len(chunk)) < 0:
                raise Unavailable("the files of the session have no end", _STEP)
            await take(chunk)
        exit_code = await process.wait()
    if exit_code > copying.KILLED or not listing.packed.files:
        raise Unavailable("the files of the session could not be read to their end", _STEP)
    return listing.packed


async def unpack(sandbox: Sandbox, content: Content) -> Sequence[str]:
    """Unpacks what `pack` passed on, and returns the languages that have libraries now.

    Raises `BadState` if it does not fit.
    """
    async with _unhurried(sandbox, "opening the files") as tools:
        # Once: what is there already would be skipped in a second try.
        done = await sandbox.run(("sh", "-c", _UNPACK), {"PATH": PATH}, stdin=_told(content(), tools))
    if done.exit_code:
        full = await sandbox.fullness(thorough=True)
        if full.disk or full.large:
            most = f"{format_size(sandbox.policy.disk)} (limits.disk in the profile)"
            raise BadState(f"the files do not fit: a folder can have {most}", "only the operator can raise it")
        raise BadState(f"the files cannot be unpacked: {one_line(copying.first_line(done.stderr))}")
    return done.stdout.decode(errors="replace").split()


def _unhurried(sandbox: Sandbox, what: str) -> AbstractAsyncContextManager[copying.Tools]:
    return copying.in_time(sandbox, what, seconds=_SECONDS + seconds_for_bytes(3 * sandbox.policy.disk), step=_STEP)


async def _told(chunks: AsyncIterator[bytes] | ByteReceiveStream, tools: copying.Tools) -> AsyncIterator[bytes]:
    """Passes chunks on, and lets the tools know how many bytes have moved; not each time, which would take longer."""
    moved = 0
    async for chunk in chunks:
        yield chunk
        if (moved := moved + len(chunk)) >= _TOLD:
            tools.moved(moved)
            moved = 0


class _Listing:
    """Reads what the packing says: the reports, then a line for each file, and others about what is left out."""

    def __init__(self) -> None:
        self.packed = Packed()
        self._rest = b""
        self._report: list[bytes] | None = []
        """The lines of the report that is being read; None after the last."""
        self._size = 0

    async def read(self, stream: ByteReceiveStream) -> None:
        async for chunk in stream:
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            self._rest = self._rest[:_LINE_MAX]
            for line in lines:
                if self._report is None:
                    self._take(line)
                else:
                    self._take_report(line, self._report)

    def _take_report(self, line: bytes, lines: list[bytes]) -> None:
        if not line and lines:
            language = lines[0].decode(errors="replace").removeprefix(f"{FOLDER}/").removesuffix("/report")
            self.packed.reports[language] = _parse(language, lines[1:])
            self._report = []
        elif not line:
            self._report = None
        elif (size := self._size + len(line)) < _REPORTS_MAX:
            self._size = size
            lines.append(line)

    def _take(self, line: bytes) -> None:
        if not line.startswith(_TAR):
            self.packed.files += not line.startswith(_OWN)
        elif len(self.packed.missing) < _SHOWN_MAX and _END not in line:
            text = one_line(line.removeprefix(_TAR).decode(errors="replace"))
            name, _, reason = text.rpartition(": ")
            found = Missing("", f"/{name}"[:_FIELD_MAX], "", _LEFT_OUT.get(reason, reason)[:_FIELD_MAX])
            self.packed.missing.append(found)


def _parse(language: str, lines: Sequence[bytes]) -> Report:
    """A report, which code can have written."""
    report = Report()
    for line in lines:
        kind, *fields = (one_line(part)[:_FIELD_MAX] for part in line.decode(errors="replace").split("\t"))
        match kind, fields:
            case "kept", [number] if number.isascii() and number.isdigit() and len(number) < _DIGITS:
                report.kept = int(number)
            case "lost", [name, kind, reason] if len(report.missing) < _SHOWN_MAX:
                report.missing.append(Missing(language, name, kind, reason))
            case "note", [note] if len(report.notes) < _NOTES_MAX:
                report.notes.append(note)
    return report
