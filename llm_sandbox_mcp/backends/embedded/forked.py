"""A forked copy of the launcher, until it becomes another program or ends."""

from __future__ import annotations

import os
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def to_the_end(cannot: str = "", *, quiet: bool = False) -> Iterator[None]:
    """Runs the rest of a forked process: it exits after the block, with 0, or with 1 if the block raises, and never
    returns to the frames in which it was forked.

    Unless `quiet`, an error is written to standard error, with `cannot`, what the process cannot do, before it.
    """
    try:
        yield
        os._exit(0)
    except BaseException as error:  # every one: a process that leaves this block would go on as a second launcher
        if not quiet:
            os.write(2, (f"{cannot}: {error}" if cannot else str(error)).encode())
    finally:
        os._exit(1)
