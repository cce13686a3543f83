"""Pseudo-terminals of a sandbox's own: the kernel has so many for the machine, and one sandbox could take them all."""

from __future__ import annotations

import os
import signal

from .. import libc
from . import uids
from .forked import to_the_end

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = "terminals"
"""Where they are mounted, in the folder that is shown as `stage`; each sandbox sees its own there."""
MOST = 64

_SECONDS = 10


def own(stage: str) -> None:
    """Gives this process, and what it starts, pseudo-terminals of their own. OSError where it may not mount."""
    libc.own_mounts()
    options = f"newinstance,ptmxmode=0666,mode=0620,max={MOST}"
    libc.mount("devpts", os.path.join(stage, FOLDER), "devpts", libc.MS_NOSUID | libc.MS_NOEXEC, options)


def can_be_owned(stage: str, shares: Mapping[str, int] | None) -> bool:
    """Whether `own` succeeds: for root as it is, for an ordinary user in the namespace that has these shares."""
    pid = os.fork()
    if pid == 0:
        with to_the_end(quiet=True):
            signal.alarm(_SECONDS)
            if shares is not None:
                uids.bound(shares)
            own(stage)
    _, status = os.waitpid(pid, 0)
    return status == 0
