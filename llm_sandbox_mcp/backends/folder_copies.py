"""Whole folders in a sandbox that are copies of others: what is in them, and their files in both directions.

All of this is done by the sandbox's own tools, which see only what its code sees, and its code can forge their output.
"""

import os
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from functools import partial

import anyio.to_thread

from ..errors import SandboxLost, Unavailable
from ..tasks import open_tasks
from .base import Sandbox, drain, feed
from .copying import COPY_SECONDS, counted, first_line, in_time, once
from .layout import PATH
from .listing import SAME, Listed, mapped_names, read_tree, tree_command

_SLOWEST = 100
"""Files per second."""
_LOOKS = (False, False, True)
"""A folder is listed so often if processes of the code change it meanwhile; at last, they are paused."""

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
    for hindered in _LOOKS:
        sandbox.patience.hindered |= hindered
        async with in_time(sandbox, f"listing {folder}"):
            output = await sandbox.look(tree_command(folder, since), COPY_SECONDS)
        if since and output == SAME:
            return None
        found = await anyio.to_thread.run_sync(read_tree, output)
        if found is not None:
            return found
    raise Unavailable(
        f"what is in {folder} cannot be listed; let code make its folders readable, delete files if there are very "
        "many, and end processes that change them"
    )


async def held_files(sandbox: Sandbox, folder: str) -> Collection[str]:
    """The paths of the files below a folder that processes in the sandbox have open, without the folder's own.

    Raises `Unavailable` if that cannot be found out.
    """
    async with in_time(sandbox, f"finding the open files of {folder}"):
        found = await sandbox.look(_HELD.format(folder), COPY_SECONDS)
    *paths, end, rest = found.split(b"\0") if b"\0" in found else (b"", b"")
    if end != b"end" or rest:
        raise Unavailable(f"which files of {folder} code has open is not known; end processes that have very many")
    return {path.removeprefix(f"{folder}/") for path in mapped_names(paths)}


def seconds_for(files: int) -> float:
    """How long copying so many files may take, which is at least ten times as long as usual."""
    return COPY_SECONDS + files / _SLOWEST


async def unpack(
    sandbox: Sandbox, folder: str, archive: AsyncIterator[bytes], *, protected: str, seconds: float
) -> str:
    """Puts the files of a tar archive into a folder; returns why some of them could not be written.

    `protected` says what code should not write by accident: `all`, only the folders `git`, or nothing.
    """
    async with in_time(sandbox, seconds=seconds) as tools:
        argv = ("sh", "-c", _UNPACK, "sh", folder, protected)
        done = await sandbox.run(argv, {"PATH": PATH}, stdin=counted(archive, tools.moved))
    return first_line(done.stderr) if done.exit_code else ""


async def remove(sandbox: Sandbox, folder: str, names: Sequence[str], *, protected: str) -> None:
    """Removes files below a folder, and folders that are empty then."""
    deepest_first = sorted(names, key=lambda name: -name.count("/"))
    listed = b"".join(os.fsencode(f"./{name}") + b"\0" for name in deepest_first)
    async with in_time(sandbox, "deleting files") as tools:
        await tools.run(("sh", "-c", _REMOVE, "sh", folder, protected), partial(once, listed))


async def send_out(
    sandbox: Sandbox, folder: str, names: Sequence[str], take: Callable[[bytes], None], most: int
) -> None:
    """Passes a tar archive of these files below a folder to `take`, in worker threads; it cannot be trusted.

    Names that do not exist or cannot be read are left out. After `most` bytes, it is cut.
    """
    argv = ("tar", "-c", "-f", "-", *_PACKED, "--no-recursion", "-C", folder, "--null", "-T", "-")
    wanted = once(b"".join(os.fsencode(name) + b"\0" for name in names))
    async with in_time(sandbox, seconds=seconds_for(len(names)), step="run again: then they are saved") as tools:
        async with await sandbox.spawn(argv, {"PATH": PATH}, fed=True) as process, open_tasks() as tasks:
            tasks.start_soon(drain, process.stderr, bytearray())
            tasks.start_soon(feed, process.stdin, wanted)
            async for chunk in process.stdout:
                await anyio.to_thread.run_sync(partial(take, chunk))
                tools.moved(len(chunk))
                most -= len(chunk)
                if most < 0:
                    break
            tasks.cancel_scope.cancel()
        if not sandbox.alive:
            raise SandboxLost("the sandbox ended while its files were copied")
