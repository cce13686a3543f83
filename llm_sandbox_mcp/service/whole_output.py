"""Output that is too long to show: all of it is a file of the session."""

from collections.abc import AsyncIterator, Mapping

from ..backends import copying
from ..backends.base import Sandbox
from ..errors import BadPath, SandboxLost, Unavailable
from ..messages import Note, Step
from ..units import format_size


async def leave_output(sandbox: Sandbox, streams: Mapping[str, bytes], largest: int) -> list[Note]:
    """Writes each stream to the file of its name in the working directory; returns a note for each.

    `largest` is how many bytes a file of this sandbox may have.
    """
    return [await _leave(sandbox, name, data, largest) for name, data in streams.items()]


async def _leave(sandbox: Sandbox, name: str, data: bytes, largest: int) -> Note:
    size = format_size(len(data))
    if len(data) > largest:
        return _not_left(name, f"it has {size}, and one file at most {format_size(largest)}", Step.READ_PARTS)

    async def content() -> AsyncIterator[bytes]:
        yield data

    try:
        await copying.copy_in(sandbox, name, len(data), content())
    except (BadPath, SandboxLost, Unavailable) as error:
        return _not_left(name, error.cause, error.step)
    cause = f"the whole output ({size}) is in the file {name} of the working directory"
    return Note("whole_output", cause, Step.READ_PARTS, name=name, size=len(data))


def _not_left(name: str, why: str, step: str) -> Note:
    return Note(
        "output_not_left", f"the file {name} with the whole output could not be written: {why}", step, name=name
    )
