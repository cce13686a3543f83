"""A compiled language in one sandbox: code is built once, kept, and run as a separate program."""

import contextlib
import hashlib
from dataclasses import replace

import anyio

from ..backends.base import Process, Sandbox
from ..backends.layout import PATH
from ..backends.listing import Files
from ..base.errors import SandboxLost, StartFailed, Unavailable
from ..base.messages import Problem
from ..base.results import Library, OnOutput, StreamName
from ..languages.languages import Build
from ..languages.places import Places
from .protocol import Report, new_nonce
from .requests import RunRequest
from .run import Ending, Outcome, Run

_FILES = 200
"""Changed files that are listed at most, the same number as in the reports of runners."""
_PROGRAMS = 32
"""Built programs that are kept at most, as they fill the disk; a new one replaces the least recently run one."""
_KILL = 10.0
"""Seconds to wait until a killed process has ended."""


class Program:
    """Builds and runs code of one language; the counterpart of a `Kernel` for languages without a runner."""

    keeps_state = False
    missed: frozenset[str] | None = None

    def __init__(self, sandbox: Sandbox, places: Places, build: Build) -> None:
        self._sandbox = sandbox
        self._compile = places.argv(build.compile)
        self._start = places.argv(build.run)
        self._sources = tuple(build.sources)
        self._env = places.env(sandbox.path)
        self._folder = places.build_folder
        self._built: dict[bytes, int] = {}
        """The folder number of each built program, by the hash of its sources; the most recently run one is last."""
        self._libraries: tuple[Library, ...] = ()
        self._run: Run | None = None
        self._last: Process | None = None
        """The last process, if it may still run, because the engine is silent."""
        self.silence: Problem | None = None
        """Why its last run is cut off."""
        self.alive = True
        """Whether the last process has ended, so that the next can start."""

    async def run(self, request: RunRequest, cell: int) -> Outcome:
        """Builds the code, unless exactly these sources are built already, and runs it; one deadline applies to both.

        If the build fails, the outcome is that of the compiler: its exit code and its messages, which only then are
        shown. `cell`, and `variables`, `inspect` and `last` of the request, have no effect: no state is kept between
        programs.
        """
        start = anyio.current_time()
        source = request.code.encode()
        before = await self._sandbox.list_files()
        others = sorted(one for one in before.items() if one[0].endswith(self._sources))
        key = hashlib.sha256(source + repr(others).encode()).digest()
        outcome = await self._run_built(key, request)
        if outcome is None:
            number = self._free_number()
            compiled = await self._step(self._compile, number, source, replace(request, on_output=None))
            if compiled.ending != "exited" or compiled.exit_code != 0:
                await _show(compiled, request.on_output)
                return _answered(compiled, [], 0)
            left = max(0.001, request.timeout - (anyio.current_time() - start))
            outcome = await self._step(self._start, number, request.stdin.encode(), replace(request, timeout=left))
            self._built[key] = number
        outcome = replace(outcome, program=True)
        if outcome.ending == "lost" or outcome.silence:
            return outcome
        changed: list[str] = []
        with contextlib.suppress(Unavailable):  # what the program did is known all the same
            changed = _changed(before, await self._sandbox.list_files())
        return _answered(outcome, changed[:_FILES], len(changed[_FILES:]))

    async def catch_up(self) -> None:
        """Asks the engine again: what it passes on first is that the last process was killed."""
        if self._last is not None:
            self.silence = await self._last.silence()
            self.alive = not self.silence

    async def check(self, timeout: float) -> None:
        """Returns if the sandbox still starts programs; raises `SandboxLost` or `StartFailed` if not."""
        with anyio.move_on_after(timeout):
            await self._sandbox.run(("true",), {"PATH": PATH})
            return
        raise StartFailed(f"the sandbox started no program within {timeout:g} s")

    def use_libraries(self, installed: tuple[Library, ...]) -> None:
        """Takes note of the installed libraries; if they changed, programs are built again."""
        if installed != self._libraries:
            self._built.clear()
        self._libraries = installed

    def stop(self, reason: Ending = "cancelled") -> bool:
        """Stops the current build or program; returns false if there is none."""
        if self._run is None:
            return False
        self._run.stop(reason)
        return True

    @property
    def running(self) -> bool:
        """Always true: no process lives between runs, so none can end there."""
        return True

    async def close(self) -> None:
        """Does nothing: no process lives between runs."""

    async def _run_built(self, key: bytes, request: RunRequest) -> Outcome | None:
        """Runs the program if it is built; None if it is not, or no longer: an earlier program may have removed it."""
        number = self._built.pop(key, None)
        if number is None:
            return None
        try:
            outcome = await self._step(self._start, number, request.stdin.encode(), request)
        except StartFailed:
            return None
        self._built[key] = number
        return outcome

    def _free_number(self) -> int:
        """A folder number for another program."""
        if len(self._built) < _PROGRAMS:
            return next(number for number in range(_PROGRAMS) if number not in self._built.values())
        return self._built.pop(next(iter(self._built)))

    async def _step(self, words: list[str], number: int, stdin: bytes, request: RunRequest) -> Outcome:
        folder = self._folder(number)
        words = [word.replace("{build}", folder) for word in words]
        process: Process = await self._sandbox.spawn(words, self._env, closes_input=True)
        # The program does not know this nonce: all that it prints is output, and the run ends with its process.
        self._run = run = Run(process, stdin, new_nonce(), request, close_stdin=True)
        ended = False
        try:
            async with process:
                try:
                    outcome = await run.finish()
                finally:
                    self._last, self.silence = process if run.silence else None, run.silence
                    ended = run.exited or (not run.silence and await _killed(process))
            return replace(outcome, alive=ended)
        finally:
            self._run = None
            self.alive = ended


async def _killed(process: Process) -> bool:
    """Kills a program that ignored the interrupt, and returns whether it ended; the sandbox can be kept."""
    with anyio.move_on_after(_KILL, shield=True), contextlib.suppress(SandboxLost):
        await process.kill()
        await process.wait()
        return True
    return False


async def _show(outcome: Outcome, on_output: OnOutput | None) -> None:
    """Passes on what the compiler printed."""
    streams: tuple[tuple[StreamName, bytes], ...] = ("stdout", outcome.stdout), ("stderr", outcome.stderr)
    for name, printed in streams:
        if printed and on_output is not None:
            await on_output(name, printed.decode(errors="replace"))


def _answered(outcome: Outcome, files: list[str], omitted: int) -> Outcome:
    """The outcome of a program that ended, in the form of a runner's answer."""
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
