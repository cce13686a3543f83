"""The log of refusals for the operator: one line of JSON each. No text that code chose can forge a line."""

import fcntl
import io
import json
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

import anyio
import anyio.to_thread

from ..aio.tasks import open_tasks
from ..base.errors import PolicyDenied
from .records import LIMITED

_WAITING = 10_000
"""Lines that can wait to be written; further ones are counted and dropped."""
_END = 10.0
"""Seconds to write the last lines when the server shuts down."""
_LOCK = 2.0
"""Seconds to wait for the lock of the file. Servers hold it for an instant, but whoever can read the file can hold it
forever."""
_RETRY = 0.01
_LONGEST = 1000
"""Characters of one fact; the rest is cut off."""

_log = logging.getLogger(__name__)


class Audit:
    """The log of refusals; an async context manager that writes the lines to a file in the background.

    When the file has reached `size` bytes, it is renamed to `FILE.1`, which replaces an older one.
    Without a file, the lines go to Python's logging, as warnings. A disk that fails is reported there, once.
    """

    def __init__(self, file: str = "", size: int = sys.maxsize) -> None:
        self._file = file
        self._size = size
        self._lines: deque[str] = deque()
        self._omitted = 0
        self._more = anyio.Event()
        self._ending = False
        self._failed = False
        # Refusals from before the shutdown of the server are still written.
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
        """Adds a line with the time, the event such as `network.refused`, and the facts; returns at once."""
        if not self._file:
            _log.warning("%s", _line(event, facts).rstrip(), extra=LIMITED)
        elif len(self._lines) < _WAITING:
            self._lines.append(_line(event, facts))
            self._more.set()
        else:
            self._omitted += 1

    @contextmanager
    def denials(self, event: str, **facts: object) -> Iterator[None]:
        """Logs what the profile denies in this scope, but not the session id: whoever knows it can use the session."""
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
                        "audit.file: %s cannot be written: %s, so refusals are not logged; "
                        "free disk space or fix the permissions",
                        self._file,
                        error.strerror,
                    )
                self._failed = True


def _line(event: str, facts: dict[str, object]) -> str:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    short = {name: fact[:_LONGEST] if isinstance(fact, str) else fact for name, fact in facts.items()}
    return json.dumps({"time": now, "event": event, **short}) + "\n"


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
    """Opens the file, and locks it if possible: no other server with the same file writes or renames it meanwhile."""
    while True:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb", buffering=0) as log:
            _try_lock(descriptor)
            try:
                renamed = not os.path.samestat(os.fstat(descriptor), os.stat(file))
            except FileNotFoundError:
                renamed = True
            if not renamed:
                yield log
                return


def _try_lock(descriptor: int) -> None:
    last = time.monotonic() + _LOCK
    with suppress(OSError):  # some file systems have no locks
        while True:
            try:
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= last:
                    return None
                time.sleep(_RETRY)


def _write_whole(log: io.FileIO, content: bytes, before: int) -> None:
    rest = memoryview(content)
    try:
        while rest:  # an almost full disk takes only a part
            rest = rest[log.write(rest) :]
    except OSError:
        # The next line must not begin after a part of this one.
        log.truncate(before)
        raise
