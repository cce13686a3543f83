"""Lists the libraries in a sandbox: a command prints them there, and the output is parsed here within limits.

Code in the sandbox can write the files that the command reads. So the output can be as long as the output limit allows,
and made to slow down the pattern that parses it. It is parsed in a worker thread that lets other threads run, for a
limited time.
"""

import time
from functools import partial

import anyio.to_thread

from ..backends.base import Sandbox
from ..base.errors import InstallFailed
from ..base.results import Library
from ..languages.places import Places

_LONGEST_LINE = 1000
"""Maximum characters of a line; longer lines are ignored."""
_SECONDS = 2.0
"""Maximum seconds to parse all lines; a thousand libraries take a few milliseconds."""


async def list_libraries(sandbox: Sandbox, places: Places, command: tuple[str, ...]) -> tuple[Library, ...]:
    """The libraries that a command of the handler lists, parsed with the pattern of the handler.

    Raises `InstallFailed` if parsing takes longer than for any real list of libraries.
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
            f"the list of libraries from {manager.manager} cannot be read: code of this session may have changed it",
            "reset the session",
        ) from error


def read_list(listing: bytes, pattern: str, seconds: float) -> tuple[Library, ...]:
    """The libraries that the pattern finds in the lines; `TimeoutError` if that takes longer than `seconds`."""
    # Imported here, since only installations need it. Unlike re, it lets other threads run, and has a timeout.
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
