"""Limits on how long something may take, which also apply to threads."""

from collections.abc import Iterator
from contextlib import contextmanager

import anyio


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Like `anyio.fail_after`; also fails if a thread, which cannot be cancelled, finishes too late."""
    late = f"it took longer than {seconds} s"
    with anyio.fail_after(seconds) as scope:
        try:
            yield
        except Exception as error:  # any error except the cancellation itself
            if scope.cancel_called:
                raise TimeoutError(late) from error
            raise
        if scope.cancel_called:
            raise TimeoutError(late)
