"""Records of the log: what a peer or code can cause again and again is logged a few times, then counted; and no text of
theirs is obeyed by a terminal."""

import logging
import time
from collections.abc import Callable, Mapping

from ..base.text import escape, one_line

LINES = 30
"""Records a minute from one place of a program."""
_MINUTE = 60.0
_LONGEST = 1000
"""Characters of a message, without its traceback; the rest is cut off."""
_LAST = " (more of this kind are counted, and not logged, for a minute)"
_AFTER = " (and %d more of this kind, which were not logged)"

LIMITED: Mapping[str, object] = {"limited": True}
"""For `extra`: marks a record that its writer limits already."""


class WithoutFloods(logging.Filter):
    """Passes a number of records a minute from each place of a program; the first one after a flood counts the rest."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[tuple[str, int], tuple[float, int]] = {}
        """When the minute of a place began, and the records since."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is logged; its message is cut, and told about those before or after it."""
        if getattr(record, "limited", False):
            return True
        place, now, note = (record.pathname, record.lineno), self._clock(), ""
        began, seen = self._seen.get(place, (now, 0))
        if now - began >= _MINUTE:
            note = _AFTER % (seen - LINES) if seen > LINES else ""
            began, seen = now, 0
        self._seen[place] = (began, seen + 1)
        if seen >= LINES:
            return False
        note = _LAST if seen + 1 == LINES else note
        try:
            message = record.getMessage()
        except Exception:  # the call was wrong: its handler says so, and the caller goes on
            message = note = ""
        if note or len(message) > _LONGEST:
            record.msg, record.args = message[:_LONGEST] + note, ()
        # Another filter of this kind, of a logger or a handler, must not judge it again.
        record.limited = True
        return True


class EscapingFormatter(logging.Formatter):
    """Escapes control characters: logged text may come from code, and a terminal would obey them.

    A record is one line, and the lines of its traceback are indented, so no text in it can imitate another record.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging defines the name
        return one_line(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        return escape(super().format(record)).replace("\n", "\n  ")
