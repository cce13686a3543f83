"""Output of runs: what is new between two looks, and files in the sandbox with all of it if it is too long to show."""

from collections import deque
from collections.abc import AsyncIterator, Mapping
from weakref import WeakKeyDictionary

from ..backends import copying
from ..backends.base import Sandbox
from ..base.errors import BadPath, SandboxLost, Unavailable
from ..base.messages import Note, Step
from ..base.results import Output
from ..base.units import format_size


class NewOutput:
    """One stream's output since it was last taken: the end of it, if there is more than the limit."""

    def __init__(self, limit: int) -> None:
        """`limit` is in characters."""
        self._limit = limit
        self._parts: deque[str] = deque()
        self._length = 0
        self._omitted = 0

    def add(self, text: str) -> None:
        """Takes more output; drops the oldest beyond the limit."""
        self._parts.append(text)
        self._length += len(text)
        while (excess := self._length - self._limit) > 0:
            oldest = self._parts.popleft()
            if len(oldest) > excess:
                self._parts.appendleft(oldest[excess:])
            dropped = oldest[:excess]
            self._length -= len(dropped)
            self._omitted += len(dropped.encode(errors="replace"))

    def take(self) -> Output:
        """The output since the last call."""
        taken = Output("".join(self._parts), self._omitted)
        self._parts.clear()
        self._length = self._omitted = 0
        return taken


_SHARE = 8
"""The files of one session have at most one part in so many of its disk: the rest is for what its code writes."""


class WholeOutputs:
    """The files in sandboxes with output that was too long to show; those of older runs make room for others."""

    def __init__(self) -> None:
        self._files: WeakKeyDictionary[Sandbox, dict[str, int]] = WeakKeyDictionary()
        """The files of each sandbox and their bytes, oldest first."""

    async def leave(self, sandbox: Sandbox, streams: Mapping[str, bytes]) -> list[Note]:
        """Writes each stream to the file of its name in the working directory.

        Returns a note for each stream, which names its file or says why there is none.
        """
        return [await self._leave(sandbox, name, data) for name, data in streams.items()]

    async def _leave(self, sandbox: Sandbox, name: str, data: bytes) -> Note:
        room = sandbox.policy.disk // _SHARE
        largest = min(sandbox.policy.largest_file, room)
        size = format_size(len(data))
        if len(data) > largest:
            return _not_left(name, f"it has {size}, and such files at most {format_size(largest)}", Step.READ_PARTS)

        async def content() -> AsyncIterator[bytes]:
            yield data

        try:
            await self._make_room(sandbox, len(data), room)
            await copying.copy_in(sandbox, name, len(data), content)
        except (BadPath, SandboxLost, Unavailable) as error:
            return _not_left(name, error.cause, error.step)
        self._files.setdefault(sandbox, {})[name] = len(data)
        cause = f"the whole output ({size}) is in the file {name} of the working directory"
        return Note("whole_output", cause, Step.READ_PARTS, name=name, size=len(data))

    async def _make_room(self, sandbox: Sandbox, size: int, room: int) -> None:
        """Deletes the oldest of these files until one of this size fits."""
        files = self._files.get(sandbox, {})
        left, old = sum(files.values()), []
        for name, older in files.items():
            if left + size <= room:
                break
            old.append(name)
            left -= older
        if old:
            await copying.delete(sandbox, old)
            for name in old:
                del files[name]


def _not_left(name: str, why: str, step: str) -> Note:
    cause = f"the file {name} with the whole output was not written: {why}"
    return Note("output_not_left", cause, step, name=name)
