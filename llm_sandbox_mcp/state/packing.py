"""Packs what a session has into a stream, and unpacks it in another sandbox, with the tools of these sandboxes.

What comes out of a sandbox is passed on as it is, and is never read outside of one.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import anyio.to_thread
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

FOLDER = "/tmp/.sandbox-state"
"""Where variables are while they are saved or opened, in a folder for each language; gone afterwards."""
_TRACKS = "/tmp/.sandbox-tracks"
"""What is known of the files and variables that were saved last, so that only changes are saved."""
_REPORTS_MAX, _LINES_MAX = 256 << 10, 2000
"""Bytes, and lines, of all reports that are read."""
_TOLD = 1 << 20
_FIELD_MAX = 200
_DIGITS = 10
_SHOWN_MAX, _NOTES_MAX = 1000, 20
"""Things that could not be saved, and notes, at most."""
_LINE_MAX = 16 << 10
"""Bytes of a line of `tar`: longer than any path with its reason."""
_TAR, _END, _BROKEN = b"tar: ", b"Exiting with failure status", b"not recoverable"
"""How `tar` begins what it says, how it ends it if some files failed, and if all did."""
_OWN, _REPORTED, _TRACKED = FOLDER.removeprefix("/").encode(), f"{FOLDER}/".encode(), f"{_TRACKS}/".encode()
_LEFT_OUT = {"socket ignored": "it is a socket"}
_SECONDS = 30.0
"""Seconds for packing or unpacking, and longer for the bytes that there can be."""
_STEP_OPENING = "save the session again"
_STEP = "stop the processes that the code left running, and try again"

_REPORTS = """\
folder=$1
shift
for report in "$folder"/*/report; do
  [ ! -f "$report" ] || { echo "$report"; cat "$report"; echo; } >&2
done
"""
_TAR_OPTIONS = "-c -v -f - --format=posix --pax-option=delete=atime,delete=ctime --sparse"
_PACK = f"""\
{_REPORTS}
echo "$folder/" >&2
printf %010d 0
cd / && tar {_TAR_OPTIONS} -- "$@"
code=$?
rm -rf -- "$folder"
exit $code
"""
"""Its standard error has each report after its path, and after the path of the folder what `tar` says."""
_PACK_CHANGES = f"""\
{_REPORTS}
tracks=$1 later=$2 LC_ALL=C
export LC_ALL
shift 2
cd "$folder" || exit 1
[ -n "$later" ] || {{ : > "$tracks/sums"; : > "$tracks/files"; }}
find . -type f ! -path '*/parts/*' ! -name report ! -name known > all
{{
  find . -type f ! -path '*/parts/*' ! -name report ! -name known -exec sha256sum {{}} +
  find . -type f -path '*/parts/*' | sed "s|^|$(printf %064d 0)  |"
}} | sort > "$tracks/sums.new"
comm -12 "$tracks/sums" "$tracks/sums.new" | cut -c 67- | tr '\\n' '\\0' | xargs -0 -r rm -f --
grep /parts/ "$tracks/sums" >> "$tracks/sums.new"
sort -u -o "$tracks/sums.new" "$tracks/sums.new"
cd / || exit 1
find "$@" -mindepth 1 \\( -path "${{folder#/}}" -o -path "${{tracks#/}}" \\) -prune \
  -o -printf '%C@ %T@ %s %i %m %y %p\\0' | sort -z > "$tracks/files.new"
comm -z -13 "$tracks/files" "$tracks/files.new" | cut -z -d ' ' -f 7- > "$tracks/changed"
[ -n "$later" ] || printf '%s\\0' "$@" >> "$tracks/changed"
for one in files files.new; do
  cut -z -d ' ' -f 7- "$tracks/$one" | sort -z > "$tracks/$one.paths"
done
comm -z -23 "$tracks/files.paths" "$tracks/files.new.paths" > "$tracks/gone"
find "$folder" -type f \\( -name report -o -name known \\) -exec rm -f {{}} +
echo "$tracks/$(tr -cd '\\0' < "$tracks/files.new" | wc -c)" >&2
if [ ! -s "$tracks/changed" ] && [ ! -s "$tracks/gone" ] && [ -z "$(find "$folder" -type f -print -quit)" ]; then
  rm -rf -- "$folder"
  exit 0
fi
echo "$folder/" >&2
printf %010d "$(wc -c < "$tracks/gone")"
cat "$tracks/gone"
tar {_TAR_OPTIONS} --no-recursion --null --files-from="$tracks/changed" --recursion "${{folder#/}}"
code=$?
rm -rf -- "$folder"
exit $code
"""
"""The same for what has changed since the last time, or for all: before that, it says how many files there are. If
nothing has changed, it says no more. The stream begins with the names of files that are gone, after their length.
"""
_BEGIN_CHANGES = """\
folder=$1 tracks=$2 saved=$3
shift 3
if [ -n "$saved" ]; then
  for one in sums files; do mv -f -- "$tracks/$one.new" "$tracks/$one" || exit 1; done
fi
mkdir -p -m 700 -- "$tracks" "$folder" && touch -- "$tracks/sums" "$tracks/files" || exit 1
for language; do
  mkdir -p -m 700 -- "$folder/$language" || exit 1
  sed -n "s|^.*  \\./$language/parts/||p" "$tracks/sums" > "$folder/$language/known"
done
"""
_TAKE_REPORT = 'cat -- "$1/report" && rm -rf -- "$1" && { rmdir -- "${1%/*}" 2>/dev/null || :; }'
_UNPACK = """\
folder=$1 libraries=$2 existing=$3 last=$4 LC_ALL=C
export LC_ALL
cd / && head -c "$(head -c 10)" | xargs -0 -r rm -rf --
tar -x -p -f - --no-same-owner "$existing" --delay-directory-restore
code=$?
[ -n "$last" ] || exit $code
if [ "$existing" != --skip-old-files ] && cd "$folder"; then
  sort all > all.sorted
  find . -type f ! -path '*/parts/*' ! -path './all*' | sort | comm -13 all.sorted - |
    tr '\\n' '\\0' | xargs -0 -r rm -f --
fi
rm -f -- "$folder/all" "$folder/all.sorted"
rmdir -- "$folder" 2>/dev/null
ls "$libraries" 2>/dev/null
exit $code
"""
"""First removes what the stream says, before the archive. What the sandbox has at first, its interpreters made for
themselves; it stays."""

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
    unchanged: bool = False
    """Whether nothing was packed, as nothing has changed."""


async def make_folders(sandbox: Sandbox, languages: Iterable[str]) -> None:
    """Makes the folders for the variables of these languages."""
    folders = [f"{FOLDER}/{language}" for language in languages]
    async with copying.in_time(sandbox, "saving") as tools:
        done = await tools.run(("mkdir", "-p", "-m", "700", "--", FOLDER, *folders))
    if done.exit_code:
        raise Unavailable(f"/tmp of the sandbox cannot be written: {copying.first_line(done.stderr)}", _STEP)


async def begin_changes(sandbox: Sandbox, languages: Iterable[str], *, saved: bool) -> None:
    """Makes the folders, with what is known of the variables that were saved last; `saved`: those packed last are."""
    async with copying.in_time(sandbox, "saving") as tools:
        argv = ("sh", "-c", _BEGIN_CHANGES, "sh", FOLDER, _TRACKS, "saved" if saved else "", *languages)
        done = await tools.run(argv)
    if done.exit_code:
        raise Unavailable(f"/tmp of the sandbox cannot be written: {copying.first_line(done.stderr)}", _STEP)


async def take_report(sandbox: Sandbox, language: str) -> Report:
    """What became of the variables of a language; if there is a report, all that was saved of them is removed."""
    async with copying.in_time(sandbox, "opening") as tools:
        done = await tools.run(("sh", "-c", _TAKE_REPORT, "sh", f"{FOLDER}/{language}"))
    return await anyio.to_thread.run_sync(_parse, language, done.stdout[:_REPORTS_MAX])


async def remove_folders(sandbox: Sandbox) -> None:
    """Removes the folders for variables, after a failure."""
    async with copying.in_time(sandbox, "removing what was saved") as tools:
        await tools.run(("rm", "-rf", "--", FOLDER))


async def pack(sandbox: Sandbox, languages: Collection[str], take: Take, *, tmp: bool) -> Packed:
    """Passes on the session's files, with the folders for variables, which are gone then; with `tmp`, also /tmp.

    Raises `Unavailable` if it does not come to its end. The stream can be no longer than what the folders can hold.
    """
    paths = [WORKDIR, HOME, "/tmp" if tmp else FOLDER]
    return await _pack(sandbox, languages, take, (_PACK, FOLDER), paths)


async def pack_changes(sandbox: Sandbox, languages: Collection[str], take: Take, *, later: bool) -> Packed:
    """Passes on what has changed in the session's files, /tmp too, and in the folders for variables since the last
    time, if `later`; otherwise all. `begin_changes` comes before the variables are saved."""
    script = _PACK_CHANGES, FOLDER, _TRACKS, "later" if later else ""
    return await _pack(sandbox, languages, take, script, [WORKDIR, HOME, "/tmp"])


async def _pack(
    sandbox: Sandbox, languages: Collection[str], take: Take, script: Sequence[str], paths: Sequence[str]
) -> Packed:
    argv = ("sh", "-c", script[0], "sh", *script[1:], *(path.removeprefix("/") for path in paths))
    listing, left = _Listing(languages), 2 * len(paths) * sandbox.policy.disk
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
    packed = await anyio.to_thread.run_sync(listing.end)
    if exit_code > copying.KILLED or not packed.files:
        raise Unavailable("the files of the session could not be read to their end", _STEP)
    return packed


async def unpack(sandbox: Sandbox, layers: Sequence[Content]) -> tuple[Sequence[str], Sequence[Missing]]:
    """Unpacks what `pack` passed on, or all that `pack_changes` did, in this order; returns the languages that have
    libraries now, and the files that are missing.

    Raises `BadState` if it does not fit.
    """
    failed, last = _Failed(), len(layers) - 1
    languages: Sequence[str] = ()
    for number, content in enumerate(layers):
        existing = "--overwrite-dir" if number else "--skip-old-files"
        argv = ("sh", "-c", _UNPACK, "sh", FOLDER, LIBRARIES, existing, "last" * (number == last))
        async with _unhurried(sandbox, "opening the files") as tools:
            # Once: what is there already would be skipped in a second try.
            done = await sandbox.run(argv, {"PATH": PATH}, stdin=_told(content(), tools))
        if done.exit_code:
            full = await sandbox.fullness(thorough=True)
            if full.disk or full.large:
                most = f"{format_size(sandbox.policy.disk)} (limits.disk in the profile)"
                raise BadState(f"the files do not fit: a folder can have {most}", "only the operator can raise it")
            if done.exit_code > copying.KILLED or _BROKEN in done.stderr:
                cause = f"the files cannot be unpacked: {one_line(copying.first_line(done.stderr))}"
                raise BadState(cause, _STEP_OPENING)
        for line in done.stderr.split(b"\n"):
            failed.add(line)
        languages = done.stdout.decode(errors="replace").split()
    return languages, failed.missing()


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


class _Failed:
    """What `tar` says of files that it cannot read or write."""

    def __init__(self) -> None:
        self._found: list[Missing] = []
        self._more = 0

    def add(self, line: bytes) -> None:
        """Takes a line, which may say something else."""
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


class _Listing:
    """Reads what the packing says: the reports, then a line for each file, and others about what is left out."""

    def __init__(self, languages: Collection[str]) -> None:
        self._languages = languages
        self._files = 0
        self._failed = _Failed()
        self._rest = b""
        self._reports = {f"{FOLDER}/{language}/report".encode(): bytearray() for language in languages}
        self._report = bytearray()
        self._reported = False
        self._all: int | None = None
        self._size = 0

    async def read(self, stream: ByteReceiveStream) -> None:
        """Reads to the end; code can have written all of it."""
        async for chunk in stream:
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            self._rest = self._rest[:_LINE_MAX]
            for line in lines:
                if self._reported:
                    self._failed.add(line)
                    self._files += not line.startswith((_TAR, _OWN))
                else:
                    self._take_report(line)

    def end(self) -> Packed:
        """What was packed; it takes long."""
        reports = {
            language: _parse(language, bytes(text))
            for language, text in zip(self._languages, self._reports.values(), strict=True)
        }
        files = self._files if self._all is None else self._all
        return Packed(reports, files, self._failed.missing(), unchanged=not self._reported)

    def _take_report(self, line: bytes) -> None:
        if line == _REPORTED:
            self._reported = True
        elif line.startswith(_TRACKED) and (number := line.removeprefix(_TRACKED)).isdigit() and len(number) < _DIGITS:
            self._all = int(number)
        elif line in self._reports:
            self._report = self._reports[line]
        elif (size := self._size + len(line) + 1) < _REPORTS_MAX:
            self._size = size
            self._report += line + b"\n"


def _parse(language: str, text: bytes) -> Report:
    """A report, which code can have written."""
    report = Report()
    lines = text.split(b"\n")
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
