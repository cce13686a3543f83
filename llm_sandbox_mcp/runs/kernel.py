"""The conversation with one runner: the live interpreter of one language in one sandbox."""

import contextlib

from ..backends.base import Process, Sandbox
from ..errors import SandboxLost, StartFailed
from ..languages import Runner
from ..places import Places
from ..results import Library
from .execution import Ending, Outcome, Run
from .protocol import encode_request, new_nonce
from .requests import RunRequest

_SAID = 1 << 16
"""Bytes that a runner may print before and while it answers an empty program."""


class Kernel:
    """A live runner, and what it is doing now."""

    keeps_state = True

    def __init__(self, process: Process) -> None:
        self._process = process
        self._run: Run | None = None
        self.alive = True
        """Whether it can take another request."""

    @classmethod
    async def start(cls, sandbox: Sandbox, places: Places, runner: Runner) -> "Kernel":
        """Starts the runner; it need not be up yet when its first request is sent."""
        return cls(await sandbox.spawn(places.argv(runner.argv), places.env(sandbox.path)))

    async def run(self, request: RunRequest, cell: int) -> Outcome:
        """Runs code to its end; one run at a time.

        When this is cancelled, or raises, `alive` still says whether the runner answered the interrupt.
        """
        nonce = new_nonce()
        line = encode_request(nonce, cell, request.variables, request.code, tell=request.tell, last=request.last)
        self._run = run = Run(self._process, line, nonce, request)
        try:
            return await run.finish()
        finally:
            self._run = None
            self.alive = run.answered

    async def check(self, timeout: float) -> None:
        """Returns once the runner has answered an empty program; raises `StartFailed` when it does not in time."""
        # Without grace: one that does not answer in time is not kept.
        outcome = await self.run(RunRequest("", timeout=timeout, output=_SAID, grace=0), cell=0)
        if outcome.ending != "answered":
            said = outcome.stderr.decode(errors="replace").strip().splitlines()
            raise StartFailed(
                f"the runner does not answer ({outcome.ending}): {said[-1] if said else 'it said nothing'}"
            )

    @property
    def running(self) -> bool:
        """Whether its process has not ended, which code can bring about at any time."""
        return self._process.running

    def use_libraries(self, installed: tuple[Library, ...]) -> None:
        """Nothing to note: a live interpreter finds them where they are."""

    def stop(self, reason: Ending = "cancelled") -> bool:
        """Stops what runs now; false when nothing does."""
        if self._run is None:
            return False
        self._run.stop(reason)
        return True

    async def close(self) -> None:
        """Ends the runner; a sandbox that is gone has ended it already."""
        with contextlib.suppress(SandboxLost):
            await self._process.aclose()
