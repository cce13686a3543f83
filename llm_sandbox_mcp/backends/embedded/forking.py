"""The zygotes of one launcher: which there are, and which of them a new sandbox can be a fork of."""

import logging
import math
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence

import anyio
from anyio.abc import TaskGroup

from ...base.errors import EngineUnavailable, SandboxError
from ...base.text import one_line
from ..base import Zygote
from .launching import LauncherClient
from .probe import INTERPRETER

BARE = Zygote((INTERPRETER, "-I", "-S", "/opt/zygote.py"), (), ())
"""For sandboxes of every language: only PID 1 is a fork of it."""

_START = 60.0
"""Seconds for a zygote to start; what it imports has been imported before, in less time."""
_TOGETHER = 1.0
"""Seconds within which failures are counted as one."""
_FAILURES = 3
"""After so many failures in a row no further fork of a zygote, or start of it, is tried."""

_LONGEST = 200
"""Characters of the last line that a zygote has written."""

_logger = logging.getLogger(__name__)


class Zygotes:
    """Starts zygotes when sandboxes are asked for, and again after they have died. Nothing waits for a zygote.

    The first sandbox of a server is no fork, and one of a server that makes no other costs no more.
    """

    def __init__(
        self,
        launcher: LauncherClient,
        command: Callable[[Zygote], list[str]],
        trial: Callable[[str], Awaitable[None]],
        tasks: TaskGroup,
    ) -> None:
        """`command` is the argv that starts a zygote. `trial` makes a sandbox as a fork of the zygote with an id, and
        ends it; `StartFailed`."""
        self._launcher = launcher
        self._command = command
        self._trial = trial
        self._tasks = tasks
        self._asked = 0
        self._trying = self._works = False
        self._tried = anyio.Event()
        self._ready: dict[Zygote, str] = {}
        """The ids of those that can be forked."""
        self._starting: set[Zygote] = set()
        self._changed = anyio.Event()
        """Set and replaced when a zygote is ready, or has ended."""
        self._failures: dict[Zygote, int] = defaultdict(int)
        self._failed_at: dict[Zygote, float] = defaultdict(lambda: -math.inf)
        self.reasons: dict[Zygote, str] = {}
        """Why those cannot be forked that failed last."""

    def parents(self, zygote: Zygote | None) -> Sequence[tuple[Zygote, str]]:
        """The zygotes that a new sandbox could be a fork of now, best first, with their ids."""
        self._asked += 1
        if self._asked > 1:
            self._try()
        if not self._works:
            return ()
        found = ((one, self._find(one)) for one in (zygote, BARE) if one is not None)
        return [(one, name) for one, name in found if name]

    async def obstacle(self) -> str:
        """Why sandboxes cannot be forks here, once that has been tried; empty if they can."""
        self._try()
        await self._tried.wait()
        works = self._works and self._failures[BARE] < _FAILURES
        return "" if works else self.reasons.get(BARE, "the launcher has ended")

    async def settled(self, zygote: Zygote) -> bool:
        """Waits until a zygote is ready, or has failed too often; whether it can be forked."""
        while self._find(zygote) is None and zygote in self._starting:
            await self._changed.wait()
        return zygote in self._ready

    def _try(self) -> None:
        if not self._trying:
            self._trying = True
            self._tasks.start_soon(self._try_out)

    async def _try_out(self) -> None:
        """Makes one sandbox as a fork; if that works, others are made so too, as long as the launcher lives."""
        try:
            for _ in range(_FAILURES):
                if await self.settled(BARE):
                    self._works = await self._is_forked(BARE)
                if self._works:
                    break
        finally:
            self._tried.set()

    async def _is_forked(self, zygote: Zygote) -> bool:
        try:
            await self._trial(self._ready[zygote])
        except EngineUnavailable:  # the launcher has ended
            return False
        except (SandboxError, OSError) as error:  # OSError: there are too few descriptors
            self.failed(zygote, str(error))
            return False
        return True

    def _find(self, zygote: Zygote) -> str | None:
        """The id of a zygote that can be forked now; None if it is not ready, and then it is started."""
        if self._failures[zygote] >= _FAILURES:
            return None
        if zygote not in self._ready and zygote not in self._starting:
            self._starting.add(zygote)
            self._tasks.start_soon(self._keep, zygote)
        return self._ready.get(zygote)

    def worked(self, zygote: Zygote) -> None:
        """Notes that there is a fork of it."""
        self._failures.pop(zygote, None)

    def failed(self, zygote: Zygote, reason: str) -> None:
        """Notes that a fork of it failed. Failures at about the same time have one cause: they are one."""
        now = anyio.current_time()
        if now >= self._failed_at[zygote] + _TOGETHER:
            self._failed_at[zygote] = now
            self._count(zygote, reason)

    def _count(self, zygote: Zygote, reason: str) -> None:
        self._failures[zygote] += 1
        self.reasons[zygote] = reason
        _logger.warning("sandboxes start more slowly: a process that waits to be forked failed: %s", reason)

    async def _keep(self, zygote: Zygote) -> None:
        """Owns a zygote from its start to its end."""
        name = f"zygote-{secrets.token_hex(8)}"
        try:
            if reason := await self._start(zygote, name):
                await self._launcher.kill(name)
                self._count(zygote, reason)
                return
            self._ready[zygote] = name
            self._starting.discard(zygote)
            self._change()
            await self._launcher.ended(name)
        except EngineUnavailable:  # the launcher has ended, and everything with it
            self._failures[zygote] = _FAILURES
        except SandboxError as error:
            self._count(zygote, str(error))
        finally:
            self._starting.discard(zygote)
            self._ready.pop(zygote, None)
            self._change()

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def _start(self, zygote: Zygote, name: str) -> str:
        """Starts a zygote, and returns why it cannot be forked, or nothing."""
        with anyio.move_on_after(_START):
            launched = await self._launcher.zygote(name, self._command(zygote), zygote.modules)
            await launched.heard.wait()
            if launched.exited.is_set():
                *_, last = "no reason given", *launched.log.splitlines()
                return f"it ended at its start: {one_line(last)[:_LONGEST]}"
            return launched.reason
        return f"it was not ready within {_START:g} s"
