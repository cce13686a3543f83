"""Bounds on how long something may take, which hold for threads too."""

from collections.abc import Iterator
from contextlib import contextmanager

import anyio


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """`anyio.fail_after`, and the same for what comes too late from a thread, which cannot be cancelled."""
    late = f"it took longer than {seconds} s"
    with anyio.fail_after(seconds) as scope:
        try:
            yield
        except Exception as error:  # any that is not the cancellation itself
            if scope.cancel_called:
                raise TimeoutError(late) from error
            raise
        if scope.cancel_called:
            raise TimeoutError(late)
