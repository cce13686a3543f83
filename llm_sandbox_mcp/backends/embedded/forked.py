"""A copy of the launcher, from its fork until it is another program or ends."""

from __future__ import annotations

import os
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def to_the_end(cannot: str = "", *, quiet: bool = False) -> Iterator[None]:
    """The rest of a forked process: it ends here, with 0 after its block, else with 1, and never returns to the frames
    that it was forked in.

    Unless it is `quiet`, what fails is written to its standard error, after what it `cannot`.
    """
    try:
        yield
        os._exit(0)
    except BaseException as error:  # all of them, for what gets out would go on as a second launcher
        if not quiet:
            os.write(2, (f"{cannot}: {error}" if cannot else str(error)).encode())
    finally:
        os._exit(1)
