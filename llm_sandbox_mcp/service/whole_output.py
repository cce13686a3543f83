"""Output that is too long to show: all of it is a file of the session."""

from collections.abc import AsyncIterator, Mapping

from ..backends import copying
from ..backends.base import Sandbox
from ..errors import BadPath, SandboxLost, Unavailable
from ..messages import Note, Step
from ..sessions.session import Session
from ..units import format_size

_SHARE = 8
"""The files of one session have at most one part in so many of its disk: the rest is for what its code writes."""


async def leave_output(session: Session, sandbox: Sandbox, streams: Mapping[str, bytes]) -> list[Note]:
    """Writes each stream to the file of its name in the working directory; the files of older runs make room.

    Returns a note for each stream, which names its file or says why there is none.
    """
    return [await _leave(session, sandbox, name, data) for name, data in streams.items()]


async def _leave(session: Session, sandbox: Sandbox, name: str, data: bytes) -> Note:
    largest = min(session.policy.largest_file, session.policy.disk // _SHARE)
    size = format_size(len(data))
    if len(data) > largest:
        return _not_left(name, f"it has {size}, and such files at most {format_size(largest)}", Step.READ_PARTS)

    async def content() -> AsyncIterator[bytes]:
        yield data

    try:
        await _make_room(session, sandbox, len(data), session.policy.disk // _SHARE)
        await copying.copy_in(sandbox, name, len(data), content)
    except (BadPath, SandboxLost, Unavailable) as error:
        return _not_left(name, error.cause, error.step)
    session.outputs[name] = len(data)
    cause = f"the whole output ({size}) is in the file {name} of the working directory"
    return Note("whole_output", cause, Step.READ_PARTS, name=name, size=len(data))


async def _make_room(session: Session, sandbox: Sandbox, size: int, room: int) -> None:
    """Deletes the oldest of these files until one of this size fits."""
    left, old = sum(session.outputs.values()), []
    for name, older in session.outputs.items():
        if left + size <= room:
            break
        old.append(name)
        left -= older
    if old:
        await copying.delete(sandbox, old)
        for name in old:
            del session.outputs[name]


def _not_left(name: str, why: str, step: str) -> Note:
    cause = f"the file {name} with the whole output was not written: {why}"
    return Note("output_not_left", cause, step, name=name)
