"""Copies into and out of a sandbox with the sandbox's own `tar` and `find`, which see only what its code sees."""

import math
import os
import posixpath
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import anyio

from ..aio.tasks import open_tasks
from ..base.errors import BadPath, EngineUnavailable, StartFailed, Unavailable, UnknownFile, quoted
from ..base.units import format_size
from .archive import END, EXECUTABLE_MODE, FILE_MODE, ArchiveReader, Member, header, padding
from .base import Completed, Sandbox, drain, feed
from .layout import PATH, WORKDIR
from .patience import seconds_for_bytes

Chunks = Callable[[], AsyncIterator[bytes]]
"""Yields the same bytes at each call."""
TakeMember = Callable[[Member], Awaitable[None]]

_SUMMARY = "Exiting with failure status"
"""Part of the last line of `tar`, which it prints after the actual error."""

_CHANGED = 1
"""Exit code of `tar` if a file changed while it was read, for example because a process writes to it; the archive is
complete."""

_NOT_THERE = "No such file"

_FORM = ("--format=gnu", "--hard-dereference")
"""Without the second option, the second name of a file with two names would be packed as a link."""

COPY_SECONDS = 30.0
"""Longest time for one copy in or out."""
_UNHINDERED = 1.0
"""Seconds until code is paused, which it may notice: at most half of the tools' time, longer for bytes that they move.
"""
KILLED = 128
"""Higher exit codes are those of tools that a signal has ended."""

_WRITE = """\
cd "$1" || exit
[ ! -d "$2" ] || [ -L "$2" ] || { echo 'it is a folder' >&2; exit 1; }
folder=$2
while [ "$folder" != "${folder%/*}" ]; do
  folder=${folder%/*}
  [ ! -f "$folder" ] || [ -L "$folder" ] || { echo 'one of its parent folders is a file' >&2; exit 1; }
done
exec tar -x -f - --no-same-owner
"""
"""Unpacks one file below a folder. `tar` alone would replace an empty folder by the file, or a file by a folder of the
path, and so lose what was there."""


async def empty(sandbox: Sandbox, folder: str) -> None:
    """Removes everything below a folder; follows no symbolic link."""
    async with in_time(sandbox, "emptying a folder") as tools:
        await tools.run(("find", folder, "-mindepth", "1", "-delete"))


async def copy_in(sandbox: Sandbox, path: str, size: int, content: Chunks, *, executable: bool = False) -> None:
    """Writes one file below the working directory and makes missing folders; follows no symbolic link.

    Raises `BadPath` with the reason when it cannot be written, such as a full disk; nothing is left of it then.
    """

    async def archive() -> AsyncIterator[bytes]:
        yield header(path, size, mode=EXECUTABLE_MODE if executable else FILE_MODE)
        async for chunk in content():
            yield chunk
        yield padding(size) + END

    try:
        async with in_time(sandbox) as tools:
            done = await tools.run(("sh", "-c", _WRITE, "sh", WORKDIR, path), archive)
            await _check_written(sandbox, path, done)
    except BadPath:
        # The part of it that fits, which would look like the file. Only now: without it, the disk is not full.
        await delete(sandbox, [path])
        raise


async def delete(sandbox: Sandbox, paths: Sequence[str]) -> None:
    """Deletes files below the working directory; it is no error if one does not exist."""
    async with in_time(sandbox, "deleting files") as tools:
        await tools.run(("rm", "-f", "--", *(f"{WORKDIR}/{path}" for path in paths)))


async def make_folder(sandbox: Sandbox, path: str) -> None:
    """Makes a folder below the working directory with missing parents, unless it exists; raises as `copy_in` does."""
    async with in_time(sandbox) as tools:
        done = await tools.run(("mkdir", "-p", "--", f"{WORKDIR}/{path}"))
        await _check_written(sandbox, path, done)


async def _check_written(sandbox: Sandbox, path: str, done: Completed) -> None:
    if done.exit_code != 0:
        full = f"the disk limit of {format_size(sandbox.policy.disk)} is reached; delete files"
        reason = (
            full if (await sandbox.fullness(thorough=True)).disk else f"{first_line(done.stderr)}; choose another path"
        )
        raise BadPath(f"path {quoted(path)} cannot be written: {reason}")


async def is_full(sandbox: Sandbox) -> bool:
    """Whether one of the folders that code can write has no space left; raises `Unavailable` if that is not known."""
    async with in_time(sandbox, "looking for free space"):
        return (await sandbox.fullness(thorough=True)).disk


async def pack(sandbox: Sandbox, path: str) -> bytes:
    """A file, or a folder with all its contents, as a tar archive that begins with its name; `path` is absolute.

    Raises `UnknownFile` if it does not exist, and `BadPath` if it cannot be read or the archive is larger than twice
    `policy.disk`. The disk cannot hold so much data: the rest would be holes of sparse files, which have no bound.
    """
    folder, name = posixpath.split(path)
    limit = 2 * sandbox.policy.disk
    archive, errors = bytearray(), bytearray()

    async def read() -> int:
        archive.clear()
        errors.clear()
        argv = ("tar", "-c", "-f", "-", *_FORM, "-C", folder, "--", name)
        async with await sandbox.spawn(argv, {"PATH": PATH}, closes_input=True) as process, open_tasks() as tasks:
            tasks.start_soon(drain, process.stderr, errors)
            await feed(process.stdin, None)
            async for chunk in process.stdout:
                archive.extend(chunk)
                tools.moved(len(chunk))
                if len(archive) > limit:
                    most = f"{format_size(limit)}, twice limits.disk of the profile"
                    raise BadPath(f"path {quoted(path)} has more than {most}", "copy its parts separately")
            return await process.wait()

    async with in_time(sandbox) as tools:
        exit_code = await tools.use(read)
    if exit_code > _CHANGED:
        reason = first_line(bytes(errors))
        kind = UnknownFile if _NOT_THERE in reason else BadPath
        raise kind(f"path {quoted(path)} cannot be read: {reason}", "run code to list the files")
    return bytes(archive)


async def copy_out(sandbox: Sandbox, folder: str, names: Sequence[str], limit: int, take: TakeMember) -> None:
    """Passes each named regular file below a folder to `take`; a file over `limit` bytes has no content.

    Names that do not exist or are not regular files are left out. The archive comes from inside the sandbox and cannot
    be trusted.
    """
    left = list(names)
    async with in_time(sandbox) as tools:
        while left:
            if await tools.use(partial(_copy_out_some, sandbox, folder, left, limit, take, tools.moved)) > KILLED:
                break


async def _copy_out_some(
    sandbox: Sandbox, folder: str, left: list[str], limit: int, take: TakeMember, moved: Callable[[int], None]
) -> int:
    """Copies up to and including the first file that is too large, and removes from the list what need not be copied
    any more; returns the exit code of `tar`."""
    argv = ("tar", "-c", "-f", "-", *_FORM, "--no-recursion", "-C", folder, "--null", "-T", "-")
    reader = ArchiveReader(limit)
    # All files together fit on the disk; a longer stream is the zeros of sparse files, which have no bound.
    budget = 2 * sandbox.policy.disk
    names = list(left)
    async with await sandbox.spawn(argv, {"PATH": PATH}, closes_input=True) as process, open_tasks() as tasks:
        tasks.start_soon(drain, process.stderr, bytearray())
        tasks.start_soon(feed, process.stdin, once(b"".join(os.fsencode(name) + b"\0" for name in names)))
        async for chunk in process.stdout:
            moved(len(chunk))
            for member in reader.feed(chunk):
                await take(member)
                if member.name in left:
                    left.remove(member.name)
                if member.size > limit:
                    tasks.cancel_scope.cancel()
                    # The rest of it, which may be holes, is not read. If the name was not requested, nothing can be
                    # concluded from it, so the copy ends.
                    left[:] = names[names.index(member.name) + 1 :] if member.name in names else []
                    return 0
            budget -= len(chunk)
            if reader.malformed or budget < 0:
                tasks.cancel_scope.cancel()
                left.clear()
                return 0
        exit_code = await process.wait() if left else 0
        tasks.cancel_scope.cancel()
    if exit_code <= KILLED:
        left.clear()
    return exit_code


async def counted(chunks: AsyncIterator[bytes], moved: Callable[[int], None]) -> AsyncIterator[bytes]:
    """Passes chunks on, and calls `moved` with the size of each that was taken."""
    async for chunk in chunks:
        yield chunk
        moved(len(chunk))


async def once(data: bytes) -> AsyncIterator[bytes]:
    yield data


class Tools:
    """Our own tools at work in a sandbox.

    Code is paused only once it hinders them: ordinary code never does, and a pause is not hidden from it. Parents see
    that their processes stop, and some system calls end early.
    """

    def __init__(self, sandbox: Sandbox, scope: anyio.CancelScope) -> None:
        self._sandbox = sandbox
        self._code = frozenset(sandbox.processes)
        self._scope, self._most = scope, scope.deadline
        patience = sandbox.patience
        scope.deadline = min(self._most, patience.until)
        now = anyio.current_time()
        unhindered = 0 if patience.hindered else min(_UNHINDERED, (scope.deadline - now) / 2)
        self._unhindered = anyio.CancelScope(deadline=now + unhindered)
        self._paused = anyio.Event()

    def moved(self, size: int) -> None:
        """Takes note of bytes that a tool has moved."""
        self._sandbox.patience.moved(size)
        self._scope.deadline = min(self._most, self._sandbox.patience.until)
        self._unhindered.deadline += seconds_for_bytes(size)

    async def run(self, argv: Sequence[str], content: Chunks | None = None) -> Completed:
        """Runs a tool until it ends, with this input."""
        done: list[Completed] = []

        async def run() -> int:
            stdin = None if content is None else counted(content(), self.moved)
            done.append(await self._sandbox.run(argv, {"PATH": PATH}, stdin=stdin))
            return done[-1].exit_code

        await self.use(run)
        return done[-1]

    async def look(self, command: str) -> bytes:
        """The output of one of our own shell commands, as `Sandbox.look` returns it.

        Of one that code has killed, no end may be heard: without an answer, it is run again with paused code.
        """
        output: list[bytes] = []

        async def look() -> int:
            with anyio.CancelScope(deadline=math.inf if self._paused.is_set() else self._unhindered.deadline):
                output.append(await self._sandbox.look(command, COPY_SECONDS))
                return 0
            return KILLED + signal.SIGKILL

        await self.use(look)
        return output[-1]

    async def use(self, work: Callable[[], Awaitable[int]]) -> int:
        """Does work that returns the exit code of its tool; if a signal ended that, does it again with paused code."""
        paused = self._paused.is_set()
        try:
            exit_code = await work()
            if exit_code <= KILLED or paused:
                return exit_code
        except StartFailed:  # as when a signal ended its start
            if paused:
                raise
        await self.pause()
        return await work()

    async def pause(self) -> None:
        """Returns once the code is paused."""
        self._unhindered.cancel()
        await self._paused.wait()

    async def watch(self) -> None:
        """Pauses the code when the time without a pause is over, until it is cancelled."""
        with self._unhindered:
            await anyio.sleep_forever()
        self._sandbox.patience.hindered = True
        async with self._sandbox.paused(self._code):
            self._paused.set()
            await anyio.sleep_forever()


@asynccontextmanager
async def in_time(
    sandbox: Sandbox,
    what: str = "copying",
    *,
    seconds: float | None = None,
    step: str = "stop the code that runs in the session, or reset the session",
) -> AsyncIterator[Tools]:
    """Bounds the time of our own tools in a sandbox, and pauses the code if it hinders them.

    Raises `Unavailable` when the time is over, which is `seconds` at most, and at once if earlier tools have used up
    the sandbox's patience.
    """
    most = anyio.current_time() + (COPY_SECONDS if seconds is None else seconds)
    with anyio.CancelScope(deadline=most) as scope:
        tools = Tools(sandbox, scope)
        await sandbox.ready()
        async with open_tasks() as tasks:
            tasks.start_soon(tools.watch)
            if sandbox.patience.hindered:
                await tools.pause()
            yield tools
            tasks.cancel_scope.cancel()
    if scope.cancelled_caught:
        if silence := await sandbox.silence():
            raise EngineUnavailable(*silence)
        raise Unavailable(f"{what} was not done in time, as when processes of the code stop it", step)


def first_line(text: bytes) -> str:
    lines = [line for line in text.decode(errors="replace").splitlines() if line.strip() and _SUMMARY not in line]
    return lines[0][-200:] if lines else "no reason given"
