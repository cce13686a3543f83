"""Output of runs: what is new between two looks, and files in the sandbox with all of it if it is too long to show."""

from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread

from ..backends import copying
from ..backends.base import Sandbox
from ..base.errors import BadPath, SandboxLost, Unavailable
from ..base.messages import Note, Step
from ..base.results import Output
from ..base.terminal import as_left, bytes_as_left
from ..base.units import format_size
from ..runs.run import Outcome

_RAW = 4
"""How many times its limit an output has before its oldest is dropped: a terminal leaves less of it."""


class NewOutput:
    """One stream's output since it was last taken, as a terminal leaves it: the end, if it is more than the limit."""

    def __init__(self, limit: int) -> None:
        """`limit` is in characters."""
        self._limit = limit
        self._parts: deque[str] = deque()
        self._length = 0
        self._omitted = 0

    def add(self, text: str) -> None:
        """Takes more output; drops the oldest if there is far more than the limit."""
        self._parts.append(text)
        self._length += len(text)
        while (excess := self._length - _RAW * self._limit) > 0:
            oldest = self._parts.popleft()
            if len(oldest) > excess:
                self._parts.appendleft(oldest[excess:])
            dropped = oldest[:excess]
            self._length -= len(dropped)
            self._omitted += _size(dropped)

    def take(self) -> Output:
        """The output since the last call."""
        text = as_left("".join(self._parts))
        shown = text[-self._limit :]
        taken = Output(shown, self._omitted + _size(text[: len(text) - len(shown)]))
        self._parts.clear()
        self._length = self._omitted = 0
        return taken


def _size(text: str) -> int:
    return len(text.encode(errors="replace"))


_AT_ONCE = 1 << 16
"""Bytes of output that are made what a terminal leaves of them without a thread of their own."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """What a run printed, and for a model also its result, by name: all of it, and what is to be shown of it."""

    whole: Mapping[str, bytes]
    shown: Mapping[str, bytes]

    def long(self, run: int, most: int) -> Mapping[str, bytes]:
        """All of those of which more than `most` bytes are to be shown, by the names of their files."""
        return {f"run-{run}-{name}.txt": self.whole[name] for name, data in self.shown.items() if len(data) > most}


_SHARE = 8
"""The files of one session have at most one part in so many of its disk: the rest is for what its code writes."""


class WholeOutputs:
    """The files in sandboxes with output that was too long to show; those of older runs make room for others."""

    def __init__(self) -> None:
        self._files: WeakKeyDictionary[Sandbox, dict[str, int]] = WeakKeyDictionary()
        """The files of each sandbox and their bytes, oldest first."""
        self._turn = anyio.CapacityLimiter(1)

    async def of(self, outcome: Outcome, *, for_model: bool) -> Outputs:
        """The outputs of a run, to be shown as they are, or to a model as a terminal leaves them."""
        whole = {"stdout": outcome.stdout, "stderr": outcome.stderr}
        if not for_model:
            return Outputs(whole, whole)
        shown = {name: await self._as_left(data) for name, data in whole.items()}
        result = outcome.report.result if outcome.report is not None else None
        # Not as a terminal leaves it: it is a text by itself, and exact.
        exact = {"result": (result or "").encode(errors="replace")}
        return Outputs(whole | exact, shown | exact)

    async def _as_left(self, data: bytes) -> bytes:
        if b"\r" not in data or len(data) <= _AT_ONCE:
            return bytes_as_left(data)
        # One at a time: code can print megabytes of carriage returns, and threads take turns with the server.
        return await anyio.to_thread.run_sync(bytes_as_left, data, limiter=self._turn)

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
        # Runners cut results off.
        what = "all that is kept of the result" if name.endswith("-result.txt") else "the whole output"
        cause = f"{what} ({size}) is in the file {name} of the working directory"
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
