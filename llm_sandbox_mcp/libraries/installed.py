"""What is installed in a sandbox: printed by a command in it, read here within bounds.

Code in the sandbox writes files that such a command reads. So what is printed may be as long as output may be, and
made for the pattern that reads it: it is read in a worker thread, which other threads run beside, for so long at most.
"""

import time
from functools import partial

import anyio.to_thread

from ..backends.base import Sandbox
from ..errors import InstallFailed
from ..places import Places
from ..results import Library

_LONGEST_LINE = 1000
"""Characters; a line with more names no library."""
_SECONDS = 2.0
"""For reading all lines; a thousand libraries take a few milliseconds."""


async def list_libraries(sandbox: Sandbox, places: Places, command: tuple[str, ...]) -> tuple[Library, ...]:
    """What a command of the handler lists, read in the way that the handler says.

    Raises `InstallFailed` where that takes longer than any list of libraries does.
    """
    manager = places.language.handler.libraries
    if manager is None:
        return ()
    listing = await sandbox.run(places.argv(command), places.env(sandbox.path))
    read = partial(read_list, listing.stdout, manager.installed_pattern, _SECONDS)
    try:
        return await anyio.to_thread.run_sync(read)
    except TimeoutError as error:
        raise InstallFailed(
            f"the list of what {manager.manager} installed cannot be read: code of this session may have changed it; "
            "reset the session"
        ) from error


def read_list(listing: bytes, pattern: str, seconds: float) -> tuple[Library, ...]:
    """The libraries of the lines that the pattern finds one in; `TimeoutError` when that takes so many seconds."""
    # Only installations need it, so it is not imported at the start. Unlike re it lets threads run, and ends in time.
    import regex

    find = regex.compile(pattern).search
    end = time.monotonic() + seconds
    found = []
    for line in listing.decode(errors="replace").splitlines():
        if (left := end - time.monotonic()) <= 0:
            raise TimeoutError
        if len(line) <= _LONGEST_LINE and (match := find(line, timeout=left, concurrent=True)):
            found.append(Library(match["name"], match["version"]))
    return tuple(found)
