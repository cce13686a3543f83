"""A compiled language in one sandbox: code is built once, kept, and run as a program of its own."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace

import anyio

from .backends.base import Files, Process, Sandbox
from .execution import Ending, Outcome, Run
from .kernel import Places
from .languages import Build
from .protocol import Report, new_nonce
from .results import OnOutput

_FILES = 200
"""Changed files that are named, as runners do."""


class Program:
    """Builds and runs code of one language; the counterpart of a `Kernel` for languages without a runner."""

    def __init__(self, sandbox: Sandbox, places: Places, build: Build) -> None:
        self._sandbox = sandbox
        self._places = places
        self._build = build
        self._built: set[str] = set()
        self._run: Run | None = None
        self.alive = True
        """Whether what ran last has ended, so that the next may start."""

    async def run(
        self,
        code: str,
        *,
        cell: int,
        variables: Mapping[str, object],
        timeout: float,
        output: int,
        on_output: OnOutput | None = None,
    ) -> Outcome:
        """Builds the code unless this very code is built already, then runs it; the deadline is that of both together.

        Where the build fails, the outcome is the compiler's: its exit code and its messages. There is nothing that
        `cell` could count or `variables` could be put into.
        """
        start = anyio.current_time()
        name = hashlib.sha256(code.encode()).hexdigest()[:24]
        folder = self._places.build_folder(name)
        if name not in self._built:
            compiled = await self._step(self._build.compile, folder, code.encode(), timeout, output, None)
            if compiled.ending != "exited" or compiled.exit_code != 0:
                return _answered(compiled, [], 0)
            self._built.add(name)
        left = max(0.001, timeout - (anyio.current_time() - start))
        before = await self._sandbox.list_files()
        outcome = await self._step(self._build.run, folder, b"", left, output, on_output)
        if outcome.ending == "lost":
            return outcome
        changed = _changed(before, await self._sandbox.list_files())
        return _answered(outcome, changed[:_FILES], len(changed[_FILES:]))

    def stop(self, reason: Ending = "cancelled") -> bool:
        """Stops what is built or runs now; false when nothing does."""
        if self._run is None:
            return False
        self._run.stop(reason)
        return True

    @property
    def running(self) -> bool:
        """Nothing of it lives between runs, so nothing of it can end there."""
        return True

    async def close(self) -> None:
        """Nothing of it lives between runs."""

    async def _step(
        self,
        words: tuple[str, ...],
        folder: str,
        stdin: bytes,
        timeout: float,
        output: int,
        on_output: OnOutput | None,
    ) -> Outcome:
        argv = [word.replace("{build}", folder) for word in self._places.argv(words)]
        process: Process = await self._sandbox.spawn(argv, self._places.env())
        # Nobody knows this nonce: all that is printed is output, and the end of the process ends the run.
        self._run = run = Run(process, stdin, new_nonce(), output=output, on_output=on_output, close_stdin=True)
        try:
            async with process:
                outcome = await run.finish(timeout)
            return replace(outcome, alive=run.exited)
        finally:
            self._run = None
            self.alive = run.exited


def _answered(outcome: Outcome, files: list[str], omitted: int) -> Outcome:
    """The outcome of a program that ended, in the words of a runner that answered."""
    if outcome.exit_code is None:
        return outcome
    report = Report(
        status="ok" if outcome.exit_code == 0 else "error",
        exit_code=outcome.exit_code,
        files=tuple(files),
        files_omitted=omitted,
    )
    ending = "answered" if outcome.ending == "exited" else outcome.ending
    return replace(outcome, ending=ending, report=report)


def _changed(before: Files, after: Files) -> list[str]:
    return [name for name, stamp in after.items() if before.get(name) != stamp]
