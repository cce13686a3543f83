"""Templates: images with what a session had in its folders, made on request and never otherwise.

These folders are in memory, where an engine's own commit sees nothing. So they are packed inside, the archive is put
into an image, and the agent of each container made of it unpacks it before any code runs.
"""

import re
from pathlib import Path

import anyio

from ...errors import InvalidArgument, StartFailed, Unavailable, quoted
from ...tasks import open_tasks
from ..base import Process, Sandbox
from ..layout import FIGURES, HOME, PATH, WORKDIR
from .engine import Stored

LABEL = "llm-sandbox-mcp.template"
"""The name that a template was made under. A label is inherited: what has it and another name is no template."""
BASE = "llm-sandbox-mcp.template-base"
"""The image that a template was made of. One of a session in it is made of that too: else it would hold both."""

ARCHIVE = "template.tar"
DOCKERFILE = f"""\
ARG BASE
FROM ${{BASE}}
COPY {ARCHIVE} /opt/{ARCHIVE}
"""

_NAME = re.compile(
    r"([a-z0-9.-]+(:[0-9]+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
)
_LONGEST = 255

_SECONDS = 120.0
"""Longest time for packing a session's folders; code of the same user can stop it."""
_SAID = 300

# Of holes only where they are. Figures are artifacts already, and what was built is known to the session only.
_PACK = (
    *("tar", "-c", "-f", "-", "--format=gnu", "--sparse", "--anchored"),
    *(f"--exclude={folder.strip('/')}/*" for folder in (FIGURES, f"{HOME}/build")),
    *("-C", "/", WORKDIR.strip("/"), HOME.strip("/")),
)


def checked(name: str) -> str:
    """The name with its tag; `InvalidArgument` for what no image can be called."""
    if len(name) > _LONGEST or not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"image {quoted(name)} is not a name of an image; use lower-case letters, digits and . _ - such as geo:1"
        )
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def name_of(image: Stored) -> str:
    """The name of a template, with its tag; empty for an image that is none."""
    own = image.labels.get(LABEL, "")
    return own if any(name == own or name.endswith(f"/{own}") for name in image.names) else ""


async def pack(sandbox: Sandbox, archive: Path) -> None:
    """Writes what a sandbox has in its working directory and its home into an archive.

    Raises `StartFailed` when that cannot be read, and `Unavailable` when it takes too long.
    """
    said = bytearray()
    # Both folders are full at most, and the headers of small files are less than the pages that these take.
    left = 4 * sandbox.policy.disk
    with anyio.move_on_after(_SECONDS) as deadline:
        async with (
            await sandbox.spawn(_PACK, {"PATH": PATH}) as process,
            await anyio.open_file(archive, "wb") as file,
            open_tasks() as tasks,
        ):
            tasks.start_soon(_keep, process, said)
            async for part in process.stdout:
                left -= len(part)
                if left < 0:
                    raise StartFailed("the session's folders give more than they can hold; reset the session")
                await file.write(part)
            code = await process.wait()
    if deadline.cancelled_caught:
        raise Unavailable(
            f"packing the session's folders took longer than {_SECONDS:g} s; stop what runs in the session"
        )
    if code > 1:  # 1 is what changed meanwhile, which it may
        reason = " ".join(said.decode(errors="replace").split())
        raise StartFailed(
            f"the session's folders cannot be packed: {reason or 'no reason given'}; remove what is named"
        )


async def _keep(process: Process, said: bytearray) -> None:
    async for part in process.stderr:
        said += part[: _SAID - len(said)]
