"""Packs what a session has into a stream, and unpacks it in another sandbox, with the tools of these sandboxes.

What comes out of a sandbox is passed on as it is, and is never read outside of one.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio.to_thread
from anyio.abc import ByteReceiveStream

from ..aio.tasks import open_tasks
from ..backends import copying
from ..backends.base import Process, Sandbox, feed
from ..backends.layout import PATH
from ..backends.patience import seconds_for_bytes
from ..base.errors import BadState, Unavailable
from ..base.results import Missing
from ..base.text import one_line
from ..base.units import format_size
from .changes import FOLDER, NOTHING_GONE, PLACES, Seen, compare
from .reports import BROKEN, Failed, Listing, Packed, Report, parse_report

_TOLD = 1 << 20
_SECONDS = 30.0
"""Seconds for packing or unpacking, and longer for the bytes that there can be."""
_PATHS = 1000
"""Paths in one piece of input."""
_LISTING_MAX = 64 << 20
"""Bytes of the list of all files."""
_BROKEN_OFF = "the files of the session could not be read to their end"
_STEP_OPENING = "save the session again"
_STEP = "stop the processes that the code left running, and try again"

_ALL = [f"/{place}" for place in PLACES]

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
cd / && tar {_TAR_OPTIONS} -- "$@"
code=$?
rm -rf -- "$folder"
exit $code
"""
"""Its standard error has each report after its path, and after the path of the folder what `tar` says."""
_PACK_CHANGES = f"""\
{_REPORTS}
own=${{folder#/}} LC_ALL=C
export LC_ALL
echo "$folder/" >&2
cd / || exit 1
printf 'all\\0'
find "$@" -path "$own" -prune -o -path '*/*' -printf '%C@ %T@ %s %i %m %y %p\\0' -o -printf '0 0 0 0 %m %y %p\\0'
printf '\\0'
grep -shE '^[^ ]+ .w.s ' /proc/[0-9]*/maps
find "$own" -type f ! -name report ! -name known \\( -path '*/parts/*' -printf '-  %p\\n' -o -exec sha256sum {{}} + \\)
printf '\\0'
tar {_TAR_OPTIONS} --no-recursion --null --files-from=-
code=$?
for language in "$folder"/*/; do
  [ ! -d "$language/parts" ] || [ ! -f "$language/known" ] || ls "$language/parts" >> "$language/known"
done
find "$folder" -mindepth 2 ! -path "$folder/*/known" -delete
exit $code
"""
"""The same, but first it lists all files, then those with variables; it packs those that it is told on standard input.
The folders stay for the next time, with the names of the parts that were packed.
"""
_BEGIN_CHANGES = """\
folder=$1
shift
rm -rf -- "$folder"
mkdir -p -m 700 -- "$folder" && cat > "$folder/known" || exit 1
for language; do
  mkdir -m 700 -- "$folder/$language" && sed -n "s|^$language ||p" "$folder/known" > "$folder/$language/known" || exit 1
done
rm -f -- "$folder/known"
"""
_TAKE_REPORT = '[ -f "$1" ] && cat -- "$1" && exec rm -rf -- "$2"'
_UNPACK = """\
cd / || exit 1
modes=$1.modes
shift
find "$1" "$2" "$3" -type d ! -perm -700 -printf '%m\\0%p\\0' > "$modes"
xargs -0 -r -n 2 sh -c 'chmod 1701 -- "$1"' < "$modes"
head -c "$(head -c 10)" | xargs -0 -r rm -rf --
shift 3
"$@"
code=$?
if [ -s "$modes" ]; then
  xargs -0 -n 2 sh -c '[ "$(stat -c %a -- "$1")" != 1701 ] || chmod -- "$0" "$1"' < "$modes"
fi
rm -f -- "$modes"
exit $code
"""
"""The stream begins with the names of files that are gone, after their length; then comes the archive. Folders that are
closed to their owner are open for as long as it takes.
"""
_TAR = ("tar", "-x", "-p", "-f", "-", "--no-same-owner", "--delay-directory-restore")

Take = Callable[[bytes], Awaitable[None]]
Content = Callable[[], AsyncIterator[bytes]]
"""The stream that was packed, from its start at each call."""


async def make_folders(sandbox: Sandbox, languages: Iterable[str]) -> None:
    """Makes the folders for the variables of these languages."""
    folders = [f"{FOLDER}/{language}" for language in languages]
    async with copying.in_time(sandbox, "saving") as tools:
        done = await tools.run(("mkdir", "-p", "-m", "700", "--", FOLDER, *folders))
    if done.exit_code:
        raise Unavailable(f"/tmp of the sandbox cannot be written: {copying.first_line(done.stderr)}", _STEP)


async def begin_changes(sandbox: Sandbox, languages: Iterable[str], seen: Seen) -> None:
    """Makes the folders, with the names of the parts of variables that are saved already."""

    async def known() -> AsyncIterator[bytes]:
        yield b"".join(seen.known())

    async with copying.in_time(sandbox, "saving") as tools:
        done = await tools.run(("sh", "-c", _BEGIN_CHANGES, "sh", FOLDER, *languages), known)
    if done.exit_code:
        raise Unavailable(f"/tmp of the sandbox cannot be written: {copying.first_line(done.stderr)}", _STEP)


async def take_report(sandbox: Sandbox, language: str, *, last: bool) -> Report:
    """What became of the variables of a language; if there is a report, all that was saved of them is removed, and of
    the `last` one the folders of all."""
    folder = f"{FOLDER}/{language}"
    async with copying.in_time(sandbox, "opening") as tools:
        done = await tools.run(("sh", "-c", _TAKE_REPORT, "sh", f"{folder}/report", FOLDER if last else folder))
    return await anyio.to_thread.run_sync(parse_report, language, done.stdout)


async def remove_folders(sandbox: Sandbox) -> None:
    """Removes the folders for variables, after a failure."""
    async with copying.in_time(sandbox, "removing what was saved") as tools:
        await tools.run(("rm", "-rf", "--", FOLDER))


async def pack(sandbox: Sandbox, languages: Collection[str], take: Take, *, tmp: bool) -> Packed:
    """Passes on the session's files, with the folders for variables, which are gone then; with `tmp`, also /tmp.

    Raises `Unavailable` if it does not come to its end. The stream can be no longer than what the folders can hold.
    """
    places = [*PLACES[:2], PLACES[2] if tmp else FOLDER.removeprefix("/")]
    argv = ("sh", "-c", _PACK, "sh", FOLDER, *places)
    await take(NOTHING_GONE)
    async with _packing(sandbox, languages, argv) as (process, packed, tools):
        await feed(process.stdin, None)
        await _pass_on(process.stdout, take, _most(sandbox), tools)
    if not packed.files:
        raise Unavailable(_BROKEN_OFF, _STEP)
    return packed


async def pack_changes(sandbox: Sandbox, languages: Collection[str], take: Take, before: Seen | None) -> Packed:
    """Passes on what has changed in the session's files, /tmp too, and in the folders for variables; all if nothing was
    saved before. Nothing is passed on if nothing has changed. `begin_changes` makes the folders for the first time."""
    argv = ("sh", "-c", _PACK_CHANGES, "sh", FOLDER, *PLACES)
    async with _packing(sandbox, languages, argv) as (process, packed, tools), open_tasks() as tasks:
        listing, variables, rest = await _read_listing(process.stdout)
        changes = await anyio.to_thread.run_sync(compare, before, listing, variables)
        # An archive of nothing is an error for some versions of `tar`.
        tasks.start_soon(feed, process.stdin, _ended_by_nul(changes.changed or [PLACES[0].encode()]))
        if changes.changed or changes.gone:
            await take(changes.head + rest)
            await _pass_on(process.stdout, take, _most(sandbox), tools)
        else:
            await _pass_on(process.stdout, _drop, _most(sandbox), tools)
    packed.changes, packed.files = changes, changes.files
    return packed


@asynccontextmanager
async def _packing(
    sandbox: Sandbox, languages: Collection[str], argv: Sequence[str]
) -> AsyncIterator[tuple[Process, Packed, copying.Tools]]:
    """A process that packs; afterwards, what it has said of reports and of files."""
    listing, packed = Listing(languages), Packed()
    async with (
        _unhurried(sandbox, "saving the files") as tools,
        await sandbox.spawn(argv, {"PATH": PATH}, closes_input=True) as process,
        open_tasks() as tasks,
    ):
        tasks.start_soon(listing.read, process.stderr)
        yield process, packed, tools
        exit_code = await process.wait()
    await anyio.to_thread.run_sync(listing.end, packed)
    if exit_code > copying.KILLED:
        raise Unavailable(_BROKEN_OFF, _STEP)


async def unpack(sandbox: Sandbox, layers: Sequence[Content]) -> Sequence[Missing]:
    """Unpacks what `pack` passed on, or all that `pack_changes` did, in this order; returns the files that are missing.

    Raises `BadState` if it does not fit.
    """
    failed = Failed()
    for number, content in enumerate(layers):
        if number:
            argv = ["sh", "-c", _UNPACK, "sh", FOLDER, *_ALL, *_TAR, "--overwrite-dir"]
            stream = content()
        else:
            # What a sandbox has at first, its interpreters made for themselves; it stays.
            argv, stream = [*_TAR, "--skip-old-files"], _after(len(NOTHING_GONE), content())
        async with _unhurried(sandbox, "opening the files") as tools:
            # Once: what is there already would be skipped in a second try.
            done = await sandbox.run(argv, {"PATH": PATH}, stdin=_told(stream, tools), cwd="/")
        if done.exit_code:
            full = await sandbox.fullness(thorough=True)
            if full.disk or full.large:
                most = f"{format_size(sandbox.policy.disk)} (limits.disk in the profile)"
                raise BadState(f"the files do not fit: a folder can have {most}", "only the operator can raise it")
            if (await sandbox.usage()).oom_kills:
                most = f"{format_size(sandbox.policy.memory)} of memory (limits.memory in the profile)"
                raise BadState(f"the files do not fit: a sandbox can have {most}", "only the operator can raise it")
            if done.exit_code > copying.KILLED or BROKEN in done.stderr:
                cause = f"the files cannot be unpacked: {one_line(copying.first_line(done.stderr))}"
                raise BadState(cause, _STEP_OPENING)
        for line in done.stderr.split(b"\n"):
            failed.add(line)
    return failed.missing()


def _most(sandbox: Sandbox) -> int:
    """Bytes that its folders can hold, as an archive."""
    return 2 * len(PLACES) * sandbox.policy.disk


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


async def _after(size: int, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """What follows the first bytes."""
    async for chunk in chunks:
        if rest := chunk[size:]:
            yield rest
        size -= min(size, len(chunk))


async def _pass_on(stream: ByteReceiveStream, take: Take, most: int, tools: copying.Tools) -> None:
    async for chunk in _told(stream, tools):
        if (most := most - len(chunk)) < 0:
            raise Unavailable("the files of the session have no end", _STEP)
        await take(chunk)


async def _drop(_chunk: bytes) -> None:
    return


async def _ended_by_nul(paths: Sequence[bytes]) -> AsyncIterator[bytes]:
    for start in range(0, len(paths), _PATHS):
        yield b"".join(b"%b\0" % path for path in paths[start : start + _PATHS])


async def _read_listing(stream: ByteReceiveStream) -> tuple[bytes, bytes, bytes]:
    """Reads the list of all files and that of the files with variables; returns also what follows them already."""
    read, ends = bytearray(), list[int]()
    async for chunk in stream:
        searched = max(0, len(read) - 1)
        read += chunk
        if not ends and (end := read.find(b"\0\0", searched)) >= 0:
            ends, searched = [end + 1], end + 2
        if ends and (end := read.find(b"\0", max(searched, ends[0] + 1))) >= 0:
            first = read.index(b"\0") + 1
            return bytes(read[first : ends[0]]), bytes(read[ends[0] + 1 : end]), bytes(read[end + 1 :])
        if len(read) > _LISTING_MAX:
            raise Unavailable("the session has more files than can be saved", "delete some of them")
    raise Unavailable(_BROKEN_OFF, _STEP)
