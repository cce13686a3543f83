"""Separate pseudo-terminals for each sandbox: the machine has a limited number, and one sandbox could take them all."""

from __future__ import annotations

import os
import signal

from .. import libc
from . import uids
from .forked import to_the_end
from .zygote import TERMINALS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = "terminals"
"""Where they are mounted, in the folder that is shown as `stage`; each sandbox sees its own there."""

_SECONDS = 10


def own(stage: str) -> None:
    """Gives this process, and what it starts, their own pseudo-terminals. OSError if it is not allowed to mount."""
    libc.own_mounts()
    libc.mount("devpts", os.path.join(stage, FOLDER), "devpts", libc.MS_NOSUID | libc.MS_NOEXEC, TERMINALS)


def can_be_owned(stage: str, shares: Mapping[str, int] | None) -> bool:
    """Whether `own` succeeds: for root directly, for an ordinary user in a user namespace with these shares."""
    pid = os.fork()
    if pid == 0:
        with to_the_end(quiet=True):
            signal.alarm(_SECONDS)
            if shares is not None:
                uids.bound(shares)
            own(stage)
    _, status = os.waitpid(pid, 0)
    return status == 0
