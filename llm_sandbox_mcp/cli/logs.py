"""Logging to stderr, which perhaps nobody reads: no caller waits until it is written."""

import logging
import os
import select
import sys
import threading
from collections import deque
from contextlib import suppress

from ..host.records import EscapingFormatter, WithoutFloods

_WAITING = 1000
"""Lines that can wait to be written; further ones are counted and dropped."""
_END = 1.0
"""Seconds to write the last lines when the program ends."""
_WRONG = "a record of %s could not be written: %s; correct the call at %s:%d"
_OMITTED = "%d records are missing here, as standard error was not read in time; read it, or redirect it to a file"


def log_to_stderr() -> None:
    """Sends warnings and errors to stderr, without floods, unless logging is configured already."""
    handler = Background(2)
    handler.addFilter(WithoutFloods())
    handler.setFormatter(EscapingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


class Background(logging.Handler):
    """Writes to a descriptor in a thread of its own; what cannot be written in time is counted, and told once."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._lines: deque[str] = deque()
        """The first one is being written."""
        self._omitted = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Has a record written; returns at once, and raises nothing."""
        try:
            self._put(self.format(record))
        except Exception:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging defines the name
        """Says in the log itself, where nobody waits, which record could not be written."""
        error, _, _ = sys.exc_info()
        with suppress(Exception):
            name = error.__name__ if error is not None else "no error"
            self._put(self._own(_WRONG, record.name, name, record.pathname, record.lineno))

    def _put(self, line: str) -> None:
        with self._changed:
            if self._thread is None:
                # A daemon, and without the locks of sys.stderr: the program ends although this thread still writes.
                thread = threading.Thread(target=self._write, name="log", daemon=True)
                with suppress(RuntimeError):  # there can be none now: the next record tries again
                    thread.start()
                    self._thread = thread
            # Once one is missing, so are all until the others are written: the gap is told where it is, and once.
            if self._omitted or len(self._lines) == _WAITING:
                self._omitted += 1
                return
            self._lines.append(line)
            self._changed.notify_all()

    def flush(self) -> None:
        """Waits until all is written, but not for long."""
        with self._changed:
            self._changed.wait_for(lambda: not self._lines, _END)

    def close(self) -> None:
        """Ends the thread once all is written; does not wait for it."""
        super().close()
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _own(self, text: str, *values: object) -> str:
        return self.format(logging.LogRecord(__name__, logging.WARNING, "", 0, text, values, None))

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines or self._closed)
                if not self._lines:
                    return
                line = self._lines[0]
            _write_whole(self._descriptor, f"{line}\n".encode(errors="replace"))
            with self._changed:
                self._lines.popleft()
                if self._omitted and not self._lines:
                    self._lines.append(self._own(_OMITTED, self._omitted))
                    self._omitted = 0
                self._changed.notify_all()


def _write_whole(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    with suppress(OSError):  # nobody can read it any more
        while rest:
            try:
                rest = rest[os.write(descriptor, rest) :]
            except BlockingIOError:  # whoever started the program has made it so
                poll = select.poll()
                poll.register(descriptor, select.POLLOUT)
                poll.poll()
