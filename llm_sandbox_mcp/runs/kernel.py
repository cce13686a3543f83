"""The conversation with one runner: the live interpreter of one language in one sandbox."""

import contextlib
from collections.abc import Mapping

from ..backends.base import Process, Sandbox
from ..errors import SandboxLost, StartFailed
from ..languages import Runner
from ..places import Places
from ..results import OnOutput
from .execution import Ending, Outcome, Run
from .protocol import encode_request, new_nonce

_SAID = 1 << 16
"""Bytes that a runner may print before and while it answers an empty program."""


class Kernel:
    """A live runner, and what it is doing now."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._run: Run | None = None
        self.alive = True
        """Whether it can take another request."""

    @classmethod
    async def start(cls, sandbox: Sandbox, places: Places, runner: Runner) -> "Kernel":
        """Starts the runner; it need not be up yet when its first request is sent."""
        return cls(await sandbox.spawn(places.argv(runner.argv), places.env(sandbox.path)))

    async def run(
        self,
        code: str,
        *,
        cell: int,
        variables: Mapping[str, object],
        timeout: float,
        output: int,
        grace: float,
        on_output: OnOutput | None = None,
        tell: bool = False,
        last: bool = False,
    ) -> Outcome:
        """Runs code to its end; one run at a time. `tell`: the report says what the names that it bound stand for.

        `last`: the run has all that an interpreter does at its end, and nothing can be run after it.

        When this is cancelled, or raises, `alive` still says whether the runner answered the interrupt.
        """
        nonce = new_nonce()
        request = encode_request(nonce, cell, variables, code, tell=tell, last=last)
        self._run = run = Run(self._process, request, nonce, output=output, grace=grace, on_output=on_output)
        try:
            return await run.finish(timeout)
        finally:
            self._run = None
            self.alive = run.answered

    async def check(self, timeout: float) -> None:
        """Returns once the runner has answered an empty program; raises `StartFailed` when it does not in time."""
        # Without grace: one that does not answer in time is not kept.
        outcome = await self.run("", cell=0, variables={}, timeout=timeout, output=_SAID, grace=0)
        if outcome.ending != "answered":
            said = outcome.stderr.decode(errors="replace").strip().splitlines()
            raise StartFailed(
                f"the runner does not answer ({outcome.ending}): {said[-1] if said else 'it said nothing'}"
            )

    @property
    def running(self) -> bool:
        """Whether its process has not ended, which code can bring about at any time."""
        return self._process.running

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
