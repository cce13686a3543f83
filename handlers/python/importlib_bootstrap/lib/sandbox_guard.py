"""Runs user code so that neither its exceptions nor a signal at any moment can end the runner."""

from __future__ import annotations

import sys

# The `signal` module would load `enum` and `functools`.
from _signal import ITIMER_REAL, NSIG, SIGINT, getsignal, setitimer, signal

INTERRUPTED = 130
"""The exit code of code that was interrupted."""


class Guard:
    """Turns SIGINT into KeyboardInterrupt while guarded work runs, and ignores it at any other time."""

    def __init__(self) -> None:
        self.interrupted = False
        """Whether a SIGINT has arrived since this was last set to False."""
        self._armed = False
        self._resting: dict = {}
        signal(SIGINT, self._on_interrupt)

    def run(self, work, *args) -> BaseException | None:
        """Calls `work` and returns what it raised; raises nothing."""
        error: BaseException | None = None
        done = False
        # Two layers, because an interrupt may arrive inside the `except` of the first. A third is not needed: an
        # interrupt that arrives while this function itself runs disarms the guard before it raises.
        try:
            try:
                self._armed = True
                while self._resting:
                    signal(*self._resting.popitem())
                work(*args)
                done = True
            except BaseException as caught:
                error = caught
            self._armed = False
            self._take_back()
        except BaseException as late:
            self._armed = False
            self._take_back()
            if error is None and not done:
                error = late
        try:
            return error
        finally:
            # Otherwise this frame, which is in the traceback, would keep the objects of the code's frames alive.
            error = None

    def _on_interrupt(self, number: int, frame) -> None:
        self.interrupted = True
        if not self._armed:
            return
        if frame is None or frame.f_code is _RUN:
            self._armed = False
        raise KeyboardInterrupt

    def _take_back(self) -> None:
        """Stops user code from running outside guarded work: disables handlers, alarms and trace functions."""
        setitimer(ITIMER_REAL, 0)
        signal(SIGINT, self._on_interrupt)
        sys.settrace(None)
        sys.setprofile(None)
        if "signal" in sys.modules:  # otherwise the code cannot have set a handler
            for number in range(1, NSIG):
                handler = getsignal(number)
                if callable(handler) and number != SIGINT:
                    self._resting[number] = handler
                    signal(number, _rest)


def _rest(number: int, frame) -> None:
    pass


_RUN = Guard.run.__code__
