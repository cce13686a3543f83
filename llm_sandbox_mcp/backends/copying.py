"""Copies into and out of a sandbox, by its own `tar` and `find`: they see what its code sees, and no more."""

import os
import posixpath
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

import anyio

from ..errors import BadPath, Unavailable, UnknownFile, quoted
from ..tasks import open_tasks
from ..units import format_size
from .archive import END, ArchiveReader, Member, header, padding
from .base import Completed, Sandbox, drain, feed
from .layout import PATH, WORKDIR

TakeMember = Callable[[Member], Awaitable[None]]

_SUMMARY = "Exiting with failure status"
"""In the line with which `tar` ends after it has said what went wrong."""

_CHANGED = 1
"""How `tar` ends where a file changed while it was read, as one that is written to does; the archive is whole."""

_NOT_THERE = "No such file"

_FORM = ("--format=gnu", "--hard-dereference")
"""Of a file with two names, the second would come as a link."""

COPY_SECONDS = 30.0
"""Longest time for one copy in or out."""

_WRITE = """\
cd "$1" || exit
[ ! -d "$2" ] || [ -L "$2" ] || { echo 'it is a folder' >&2; exit 1; }
folder=$2
while [ "$folder" != "${folder%/*}" ]; do
  folder=${folder%/*}
  [ ! -f "$folder" ] || [ -L "$folder" ] || { echo 'a part of it is a file' >&2; exit 1; }
done
exec tar -x -f - --no-same-owner
"""
"""Unpacks one file below a folder. `tar` alone would put it in the place of an empty folder, or a folder of its path
in the place of a file, and so lose what was there."""


async def empty(sandbox: Sandbox, folder: str) -> None:
    """Removes what is below a folder; no symbolic link is followed."""
    with _in_time("emptying a folder"):
        await sandbox.run(("find", folder, "-mindepth", "1", "-delete"), {"PATH": PATH})


async def copy_in(
    sandbox: Sandbox, path: str, size: int, content: AsyncIterator[bytes], *, executable: bool = False
) -> None:
    """Writes one file below the working directory, its folders made as needed; no symbolic link is followed.

    Raises `BadPath` with the reason when it cannot be written, such as a full disk.
    """

    async def archive() -> AsyncIterator[bytes]:
        yield header(path, size, executable=executable)
        async for chunk in content:
            yield chunk
        yield padding(size) + END

    with _in_time():
        done = await sandbox.run(("sh", "-c", _WRITE, "sh", WORKDIR, path), {"PATH": PATH}, stdin=archive())
    await _check_written(sandbox, path, done)


async def make_folder(sandbox: Sandbox, path: str) -> None:
    """Makes a folder below the working directory, and those of its path, unless it is there; else as `copy_in`."""
    with _in_time():
        done = await sandbox.run(("mkdir", "-p", "--", f"{WORKDIR}/{path}"), {"PATH": PATH})
    await _check_written(sandbox, path, done)


async def _check_written(sandbox: Sandbox, path: str, done: Completed) -> None:
    if done.exit_code != 0:
        full = f"the disk limit of {format_size(sandbox.policy.disk)} is reached; delete files"
        reason = (
            full if (await sandbox.fullness(thorough=True)).disk else f"{_first_line(done.stderr)}; choose another path"
        )
        raise BadPath(f"path {quoted(path)} cannot be written: {reason}")


async def pack(sandbox: Sandbox, path: str) -> bytes:
    """A file, or a folder with all that is in it, as a tar archive that begins with its name; `path` is absolute.

    Raises `UnknownFile` where there is none, and `BadPath` for what cannot be read, and for an archive of more than
    twice the bytes that the disk holds: the rest would be holes, of which there could be any.
    """
    folder, name = posixpath.split(path)
    limit = 2 * sandbox.policy.disk
    archive, errors = bytearray(), bytearray()
    with _in_time():
        argv = ("tar", "-c", "-f", "-", *_FORM, "-C", folder, "--", name)
        async with await sandbox.spawn(argv, {"PATH": PATH}, fed=True) as process, open_tasks() as tasks:
            tasks.start_soon(drain, process.stderr, errors)
            await feed(process.stdin, None)
            async for chunk in process.stdout:
                archive += chunk
                if len(archive) > limit:
                    most = f"{format_size(limit)}, twice limits.disk of the profile"
                    raise BadPath(f"path {quoted(path)} has more than {most}; copy parts of it")
            exit_code = await process.wait()
    if exit_code > _CHANGED:
        reason = _first_line(bytes(errors))
        kind = UnknownFile if _NOT_THERE in reason else BadPath
        raise kind(f"path {quoted(path)} cannot be read: {reason}; run code to list what is there")
    return bytes(archive)


async def copy_out(sandbox: Sandbox, folder: str, names: Sequence[str], limit: int, take: TakeMember) -> None:
    """Gives each regular file below a folder to `take`; of one over `limit` bytes only name and size.

    What is not there, or not a regular file, is left out: the archive comes from inside and promises nothing.
    """
    left = list(names)
    with _in_time():
        while left:
            left = await _copy_out_some(sandbox, folder, left, limit, take)


async def _copy_out_some(sandbox: Sandbox, folder: str, names: list[str], limit: int, take: TakeMember) -> list[str]:
    """Copies up to the first file that is too large, and gives the names that are left."""
    argv = ("tar", "-c", "-f", "-", *_FORM, "--no-recursion", "-C", folder, "--null", "-T", "-")
    reader = ArchiveReader(limit)
    # All files together fit the disk; a stream of more is zeros of sparse files, of which there could be any.
    budget = 2 * sandbox.policy.disk
    async with await sandbox.spawn(argv, {"PATH": PATH}, fed=True) as process, open_tasks() as tasks:
        tasks.start_soon(drain, process.stderr, bytearray())
        tasks.start_soon(feed, process.stdin, _once(b"".join(os.fsencode(name) + b"\0" for name in names)))
        async for chunk in process.stdout:
            for member in reader.feed(chunk):
                await take(member)
                if member.size > limit:
                    tasks.cancel_scope.cancel()
                    # Not read to its end, which may be holes: from one that was not asked for, nothing follows.
                    return names[names.index(member.name) + 1 :] if member.name in names else []
            budget -= len(chunk)
            if reader.malformed or budget < 0:
                break
        tasks.cancel_scope.cancel()
    return []


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


@contextmanager
def _in_time(what: str = "copying") -> Iterator[None]:
    """Bounds what tools of ours do: code that runs in the sandbox can stop them, or write in their name for ever."""
    with anyio.move_on_after(COPY_SECONDS) as scope:
        yield
    if scope.cancelled_caught:
        raise Unavailable(f"{what} took longer than {COPY_SECONDS:g} s; stop what runs in the session, or reset it")


def _first_line(text: bytes) -> str:
    lines = [line for line in text.decode(errors="replace").splitlines() if line.strip() and _SUMMARY not in line]
    return lines[0][-200:] if lines else "no reason given"
