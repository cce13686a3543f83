"""Whole folders in a sandbox that are copies of others: what is in them, and their files in both directions.

All of this is done by the sandbox's own tools, which see only what its code sees, and its code can forge their output.
"""

import os
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from functools import partial

import anyio.to_thread

from ..aio.tasks import open_tasks
from ..base.errors import SandboxLost, Unavailable
from .base import Sandbox, drain, feed
from .copying import COPY_SECONDS, KILLED, Chunks, first_line, in_time, once
from .layout import PATH
from .listing import SAME, Listed, mapped_names, read_tree, tree_command
from .patience import seconds_for_files

_LOOKS = (False, False, True)
"""Whether code is paused first: we look so often if its processes change or kill something meanwhile."""

_PROTECTED = """\
change() {
  case $2 in
    all) chmod -R "$1" -- "$3" ;;
    git) find "$3" -type d -name .git -prune -exec chmod -R "$1" -- {} + ;;
  esac
}
mkdir -p -- "$1" || exit
change u+w "$2" "$1"
"""
"""Lets the next line write into a folder that is protected from the code."""
_UNPACK = f"""\
{_PROTECTED}tar -x -p -f - --no-same-owner -C "$1"
code=$?
change a-w "$2" "$1"
exit $code
"""
_REMOVE = f"""\
{_PROTECTED}(cd "$1" && exec xargs -0 rm -d -f --)
change a-w "$2" "$1"
"""
"""Each name by itself, folders only if they are empty: code may have put something into them."""
_PACKED = (
    *("--format=posix", "--pax-option=delete=atime,delete=ctime,delete=mtime"),
    *("--hard-dereference", "--xattrs"),
)
"""The format that says which files have extended attributes."""
_HELD = (
    "find /proc/[0-9]*/fd -lname '{0}/*' -printf '%l\\0'; "
    "sed -n 's|^.* \\({0}/.*\\)$|\\1|p' /proc/[0-9]*/maps | tr '\\n' '\\0'; printf 'end\\0'"
)
"""Prints the files below a folder that processes have open, or in their memory."""


async def list_tree(sandbox: Sandbox, folder: str, since: int = 0) -> Listed | None:
    """Everything below a folder but hidden names; None if nothing has changed `since` the time of another list.

    Raises `Unavailable` if not all of it can be listed.
    """
    async for output in _looks(sandbox, f"listing {folder}", tree_command(folder, since)):
        if since and output == SAME:
            return None
        found = await anyio.to_thread.run_sync(read_tree, output)
        if found is not None:
            return found
    raise Unavailable(
        f"what is in {folder} cannot be listed",
        "let code make its folders readable, delete files if there are very many, and end processes that change them",
    )


async def held_files(sandbox: Sandbox, folder: str) -> Collection[str]:
    """The paths of the files below a folder that processes in the sandbox have open, without the folder's own.

    Raises `Unavailable` if that cannot be found out.
    """
    async for output in _looks(sandbox, f"finding the open files of {folder}", _HELD.format(folder)):
        *paths, end, rest = output.split(b"\0") if b"\0" in output else (b"", b"")
        if end == b"end" and not rest:
            return {path.removeprefix(f"{folder}/") for path in mapped_names(paths)}
    raise Unavailable(f"which files of {folder} code has open is not known", "end processes that have very many")


async def _looks(sandbox: Sandbox, what: str, command: str) -> AsyncIterator[bytes]:
    """What a command of ours prints, each time anew, since code can change or kill what it looks at."""
    for paused in _LOOKS:
        async with in_time(sandbox, what) as tools:
            if paused:
                await tools.pause()
            output = await tools.look(command)
        yield output


async def unpack(sandbox: Sandbox, folder: str, archive: Chunks, *, protected: str, files: int) -> str:
    """Puts the files of a tar archive into a folder; returns why some of them could not be written.

    `files` is their number, which bounds the time. `protected` says what code should not write by accident: `all`,
    only the folders `git`, or nothing.
    """
    async with in_time(sandbox, seconds=COPY_SECONDS + seconds_for_files(files)) as tools:
        done = await tools.run(("sh", "-c", _UNPACK, "sh", folder, protected), archive)
    if done.exit_code > KILLED:
        return "the tool that copies files into the sandbox was killed"
    return first_line(done.stderr) if done.exit_code else ""


async def remove(sandbox: Sandbox, folder: str, names: Sequence[str], *, protected: str) -> None:
    """Removes files below a folder, and folders that are empty then."""
    deepest_first = sorted(names, key=lambda name: -name.count("/"))
    listed = b"".join(os.fsencode(f"./{name}") + b"\0" for name in deepest_first)
    async with in_time(sandbox, "deleting files") as tools:
        await tools.run(("sh", "-c", _REMOVE, "sh", folder, protected), partial(once, listed))


async def send_out(
    sandbox: Sandbox,
    folder: str,
    wanted: Callable[[], Sequence[str]],
    take: Callable[[bytes], None],
    most: int,
    files: int,
) -> None:
    """Passes a tar archive of the `wanted` files below a folder to `take`; it cannot be trusted.

    Both are called in worker threads, and `wanted` again if another archive follows, since code has killed the tool.
    Names that do not exist or cannot be read are left out. After `most` bytes, an archive is cut. Raises `Unavailable`
    if that takes too long for so many `files`.
    """
    argv = ("tar", "-c", "-f", "-", *_PACKED, "--no-recursion", "-C", folder, "--null", "-T", "-")

    async def send() -> int:
        left = most
        names = b"".join(os.fsencode(name) + b"\0" for name in await anyio.to_thread.run_sync(wanted))
        async with await sandbox.spawn(argv, {"PATH": PATH}, closes_input=True) as process, open_tasks() as tasks:
            tasks.start_soon(drain, process.stderr, bytearray())
            tasks.start_soon(feed, process.stdin, once(names))
            async for chunk in process.stdout:
                await anyio.to_thread.run_sync(partial(take, chunk))
                tools.moved(len(chunk))
                left -= len(chunk)
                if left < 0:
                    tasks.cancel_scope.cancel()
                    return 0
            exit_code = await process.wait()
            tasks.cancel_scope.cancel()
        return exit_code

    step = "run again: then they are saved"
    async with in_time(sandbox, seconds=COPY_SECONDS + seconds_for_files(files), step=step) as tools:
        exit_code = await tools.use(send)
        if not sandbox.alive:
            raise SandboxLost("the sandbox ended while its files were copied")
    if exit_code > KILLED:
        raise Unavailable("the tool that copies files out of the sandbox was killed", step)
