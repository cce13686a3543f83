"""What was refused, for the operator: one line of JSON for each, which nothing that code chose can forge."""

import fcntl
import io
import json
import logging
import os
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

import anyio
import anyio.to_thread

from .errors import PolicyDenied
from .tasks import open_tasks

_WAITING = 10_000
"""Lines that wait for the disk; more are counted and left out."""
_END = 10.0
"""Seconds for the last lines, at the server's end."""
_LONGEST = 1000
"""Characters of one fact."""

_log = logging.getLogger(__name__)


class Audit:
    """The log of refusals; an async context manager, in whose scope lines are written to a file, beside the caller.

    When the file has so many bytes, it is renamed to `FILE.1`, in place of an older one.
    Without a file they go to Python's logging, as warnings. A disk that fails is told of there, once.
    """

    def __init__(self, file: str = "", size: int = sys.maxsize) -> None:
        self._file = file
        self._size = size
        self._lines: deque[str] = deque()
        self._omitted = 0
        self._more = anyio.Event()
        self._ending = False
        self._failed = False
        # What was refused before the server was told to end is written all the same.
        self._writing = anyio.CancelScope(shield=True)
        self._scope = open_tasks()

    async def __aenter__(self) -> Self:
        tasks = await self._scope.__aenter__()
        if self._file:
            tasks.start_soon(self._write)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending = True
        self._more.set()
        self._writing.deadline = anyio.current_time() + _END
        await self._scope.__aexit__(None, None, None)

    def note(self, event: str, **facts: object) -> None:
        """Adds a line: the time, the event such as `network.refused`, and facts; returns at once."""
        if not self._file:
            _log.warning("%s", _line(event, facts).rstrip())
        elif len(self._lines) < _WAITING:
            self._lines.append(_line(event, facts))
            self._more.set()
        else:
            self._omitted += 1

    @contextmanager
    def denials(self, event: str, **facts: object) -> Iterator[None]:
        """Notes what the profile denies within; without the session, whose id is all it takes to use it."""
        try:
            yield
        except PolicyDenied as denied:
            self.note(event, **facts, reason=str(denied))
            raise

    async def _write(self) -> None:
        with self._writing:
            ending = False
            while not ending:
                await self._more.wait()
                self._more = anyio.Event()
                ending = self._ending
                await self._write_all()

    async def _write_all(self) -> None:
        while self._lines or self._omitted:
            taken = "".join(self._lines)
            self._lines.clear()
            if self._omitted:
                taken += _line("audit.omitted", {"lines": self._omitted})
                self._omitted = 0
            try:
                await anyio.to_thread.run_sync(_append, self._file, taken, self._size, abandon_on_cancel=True)
                self._failed = False
            except OSError as error:
                if not self._failed:
                    _log.error(
                        "audit.file: %s cannot be written: %s; what is refused is not logged until it can be",
                        self._file,
                        error.strerror,
                    )
                self._failed = True


def _line(event: str, facts: dict[str, object]) -> str:
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    short = {name: fact[:_LONGEST] if isinstance(fact, str) else fact for name, fact in facts.items()}
    return json.dumps({"time": time, "event": event, **short}) + "\n"


def _append(file: str, text: str, size: int) -> None:
    with _locked(file) as log:
        whole = os.fstat(log.fileno()).st_size
        if whole < size:
            _write_whole(log, text.encode(), whole)
            return
        os.replace(file, f"{file}.1")
    _append(file, text, sys.maxsize)


@contextmanager
def _locked(file: str) -> Iterator[io.FileIO]:
    """The file, opened for no other server that has the same one to rename it or to write."""
    while True:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb", buffering=0) as log:
            with suppress(OSError):  # some file systems have no locks
                fcntl.flock(log, fcntl.LOCK_EX)
            try:
                renamed = not os.path.samestat(os.fstat(descriptor), os.stat(file))
            except FileNotFoundError:
                renamed = True
            if not renamed:
                yield log
                return


def _write_whole(log: io.FileIO, content: bytes, before: int) -> None:
    rest = memoryview(content)
    try:
        while rest:  # a disk that has room for a part takes that part
            rest = rest[log.write(rest) :]
    except OSError:
        # The next line must not begin in the middle of this one.
        log.truncate(before)
        raise
