"""Templates: images with the content of a session's folders, made only on request.

These folders are in memory, so an engine's own commit does not include them. Instead they are packed inside, the
archive is put into an image, and the agent of each container made from that image unpacks it before any code runs.
"""

import re
from pathlib import Path

import anyio

from ...aio.tasks import open_tasks
from ...base.errors import InvalidArgument, StartFailed, quoted
from ..base import Process, Sandbox
from ..copying import in_time
from ..layout import FIGURES, HOME, PATH, WORKDIR
from .engine import Stored

LABEL = "llm-sandbox-mcp.template"
"""The name under which a template was made. Labels are inherited: under another name, an image is not a template."""
BASE = "llm-sandbox-mcp.template-base"
"""The base image of a template. If a session in a template is committed, the new one gets this base, not both."""

ARCHIVE = "template.tar"

_NAME = re.compile(
    r"([a-z0-9.-]+(:[0-9]+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
)
_LONGEST = 255

_SECONDS = 120.0
"""Most seconds to pack a session's folders, if they have much."""
_OUTPUT = 300

# Holes take no space (--sparse). Figures are artifacts already, and only the session knows what was built.
_PACK = (
    *("tar", "-c", "-f", "-", "--format=gnu", "--sparse", "--anchored"),
    *(f"--exclude={folder.strip('/')}/*" for folder in (FIGURES, f"{HOME}/build")),
    *("-C", "/", WORKDIR.strip("/"), HOME.strip("/")),
)


def checked(name: str) -> str:
    """The name with its tag; raises `InvalidArgument` for a name that no image can have."""
    if len(name) > _LONGEST or not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"image name {quoted(name)} is not valid", "use lower-case letters, digits and . _ - such as geo:1"
        )
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def name_of(image: Stored) -> str:
    """The name of a template, with its tag; empty for an image that is not a template."""
    own = image.labels.get(LABEL, "")
    return own if any(name == own or name.endswith(f"/{own}") for name in image.names) else ""


async def pack(sandbox: Sandbox, archive: Path) -> None:
    """Packs a sandbox's working directory and home into an archive.

    Raises `StartFailed` if they cannot be read, and `Unavailable` if it takes too long.
    """
    output = bytearray()

    async def read() -> int:
        output.clear()
        # At most, both folders are full, and the headers of small files take less than the pages of these files.
        left = 4 * sandbox.policy.disk
        async with (
            await sandbox.spawn(_PACK, {"PATH": PATH}) as process,
            await anyio.open_file(archive, "wb") as file,
            open_tasks() as tasks,
        ):
            tasks.start_soon(_keep, process, output)
            async for part in process.stdout:
                tools.moved(len(part))
                left -= len(part)
                if left < 0:
                    raise StartFailed("the session's folders give more data than fits into them", "reset the session")
                await file.write(part)
            return await process.wait()

    with sandbox.patience.shared(_SECONDS):
        async with in_time(sandbox, "packing the session's folders", seconds=_SECONDS) as tools:
            code = await tools.use(read)
    if code > 1:  # 1: files changed meanwhile, which is allowed
        reason = " ".join(output.decode(errors="replace").split())
        raise StartFailed(
            f"the session's folders cannot be packed: {reason or 'no reason given'}", "remove the files named here"
        )


async def _keep(process: Process, output: bytearray) -> None:
    async for part in process.stderr:
        output += part[: _OUTPUT - len(output)]
