"""The exchange with one runner: the live interpreter of one language in one sandbox."""

import contextlib
from dataclasses import replace

from ..backends.base import Process, Sandbox
from ..base.errors import EngineUnavailable, SandboxLost, StartFailed
from ..base.messages import Problem
from ..base.results import Library
from ..languages.languages import Runner
from ..languages.places import Places
from .protocol import encode_request, new_nonce
from .requests import RunRequest
from .run import Ending, Outcome, Run

_CHECK_OUTPUT = 1 << 16
"""Bytes that a runner may print until it has answered an empty program."""


class Kernel:
    """A live runner, and its current run."""

    keeps_state = True

    def __init__(self, process: Process, *, exits: bool = False) -> None:
        """`exits`: the runner can do at the end of a run what its interpreter does when it exits."""
        self._process = process
        self._exits = exits
        self._run: Run | None = None
        self._last: Run | None = None
        """The last run, if its answer may still come, because the engine is silent."""
        self.alive = True
        """Whether it can take another request."""
        self.missed: frozenset[str] | None = None
        """What the modules looked for in vain that it imported before any code asked."""

    @classmethod
    async def start(cls, sandbox: Sandbox, places: Places, runner: Runner) -> "Kernel":
        """Starts the runner; its first request can be sent even before it is up."""
        zygote = sandbox.zygote
        kernel = cls(await sandbox.spawn(places.argv(runner.argv), places.env(sandbox.path)), exits=runner.exits)
        if zygote is not None and sandbox.zygote is None:
            kernel.missed = zygote.missed
        return kernel

    async def run(self, request: RunRequest, cell: int) -> Outcome:
        """Runs code to its end; one run at a time.

        If this is cancelled, or raises, `alive` still shows whether the runner answered the interrupt.
        """
        nonce = new_nonce()
        line = encode_request(nonce, cell, replace(request, last=request.last and self._exits))
        self._run = run = Run(self._process, line, nonce, request)
        try:
            return await run.finish()
        finally:
            self._run = None
            self._last = run if run.silence else None
            self.alive = run.alive

    @property
    def silence(self) -> Problem | None:
        """Why its last run is cut off."""
        return self._last.silence if self._last is not None else None

    async def catch_up(self) -> None:
        """Takes in the late answer of its last run; the code is interrupted."""
        if self._last is not None:
            await self._last.catch_up()
            self.alive = self._last.alive
            self._last = self._last if self._last.silence else None

    async def check(self, timeout: float) -> None:
        """Returns once the runner has answered an empty program; raises `StartFailed` if it does not in time."""
        # Without grace: a runner that does not answer in time is not kept.
        outcome = await self.run(RunRequest("", timeout=timeout, output=_CHECK_OUTPUT, grace=0), cell=0)
        if outcome.silence:
            raise EngineUnavailable(*outcome.silence)
        if outcome.ending != "answered":
            lines = outcome.stderr.decode(errors="replace").strip().splitlines()
            raise StartFailed(
                f"the runner does not answer ({outcome.ending}): {lines[-1] if lines else 'it printed nothing'}"
            )

    @property
    def running(self) -> bool:
        """Whether its process has not ended; code can end it at any time."""
        return self._process.running

    def use_libraries(self, installed: tuple[Library, ...]) -> None:
        """Does nothing: a live interpreter finds new libraries by itself."""

    def stop(self, reason: Ending = "cancelled") -> bool:
        """Stops the current run; returns false if there is none."""
        if self._run is None:
            return False
        self._run.stop(reason)
        return True

    async def close(self) -> None:
        """Ends the runner; if the sandbox is gone, the runner has ended already."""
        with contextlib.suppress(SandboxLost):
            await self._process.aclose()
