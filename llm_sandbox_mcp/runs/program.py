"""A compiled language in one sandbox: code is built once, kept, and run as a program of its own."""

import contextlib
import hashlib
from dataclasses import replace

import anyio

from ..backends.base import Process, Sandbox
from ..backends.layout import PATH
from ..backends.listing import Files
from ..errors import SandboxLost, StartFailed
from ..languages import Build
from ..places import Places
from ..results import Library
from .execution import Ending, Outcome, Run
from .protocol import Report, new_nonce
from .requests import RunRequest

_FILES = 200
"""Changed files that are named, as runners do."""
_PROGRAMS = 32
"""Built programs that are kept, for they fill the disk; the least recently run one makes room."""
_KILL = 10.0
"""Seconds for the end of a process that was killed."""


class Program:
    """Builds and runs code of one language; the counterpart of a `Kernel` for languages without a runner."""

    keeps_state = False

    def __init__(self, sandbox: Sandbox, places: Places, build: Build) -> None:
        self._sandbox = sandbox
        self._compile = places.argv(build.compile)
        self._start = places.argv(build.run)
        self._env = places.env(sandbox.path)
        self._folder = places.build_folder
        self._built: dict[bytes, int] = {}
        """The number of its folder for each program, by what its code comes to; the last run one is last."""
        self._libraries: tuple[Library, ...] = ()
        self._run: Run | None = None
        self.alive = True
        """Whether what ran last has ended, so that the next may start."""

    async def run(self, request: RunRequest, cell: int) -> Outcome:
        """Builds the code unless this very code is built already, then runs it; the deadline is that of both together.

        Where the build fails, the outcome is the compiler's: its exit code and its messages. There is nothing that
        `cell` could count, variables could be put into or be told of; each run is a program's last.
        """
        start = anyio.current_time()
        source = request.code.encode()
        key = hashlib.sha256(source).digest()
        before = await self._sandbox.list_files()
        outcome = await self._again(key, request)
        if outcome is None:
            number = self._room()
            compiled = await self._step(self._compile, number, source, replace(request, on_output=None))
            if compiled.ending != "exited" or compiled.exit_code != 0:
                return _answered(compiled, [], 0)
            left = max(0.001, request.timeout - (anyio.current_time() - start))
            outcome = await self._step(self._start, number, b"", replace(request, timeout=left))
            self._built[key] = number
        if outcome.ending == "lost":
            return outcome
        changed = _changed(before, await self._sandbox.list_files())
        return _answered(outcome, changed[:_FILES], len(changed[_FILES:]))

    async def check(self, timeout: float) -> None:
        """Returns if the sandbox still starts programs; raises `SandboxLost` or `StartFailed` if not."""
        with anyio.move_on_after(timeout):
            await self._sandbox.run(("true",), {"PATH": PATH})
            return
        raise StartFailed(f"the sandbox started no program within {timeout:g} s")

    def use_libraries(self, installed: tuple[Library, ...]) -> None:
        """Takes note of what is installed now; what was built with something else is built again."""
        if installed != self._libraries:
            self._built.clear()
        self._libraries = installed

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

    async def _again(self, key: bytes, request: RunRequest) -> Outcome | None:
        """Runs what is built; nothing when it is not, or not any more: an earlier program may have removed it."""
        number = self._built.pop(key, None)
        if number is None:
            return None
        try:
            outcome = await self._step(self._start, number, b"", request)
        except StartFailed:
            return None
        self._built[key] = number
        return outcome

    def _room(self) -> int:
        """The number of a folder for another program."""
        if len(self._built) < _PROGRAMS:
            return next(number for number in range(_PROGRAMS) if number not in self._built.values())
        return self._built.pop(next(iter(self._built)))

    async def _step(self, words: list[str], number: int, stdin: bytes, request: RunRequest) -> Outcome:
        folder = self._folder(number)
        words = [word.replace("{build}", folder) for word in words]
        process: Process = await self._sandbox.spawn(words, self._env, fed=True)
        # Nobody knows this nonce: all that is printed is output, and the end of the process ends the run.
        self._run = run = Run(process, stdin, new_nonce(), request, close_stdin=True)
        ended = False
        try:
            async with process:
                try:
                    outcome = await run.finish()
                finally:
                    ended = run.exited or await _killed(process)
            return replace(outcome, alive=ended)
        finally:
            self._run = None
            self.alive = ended


async def _killed(process: Process) -> bool:
    """Ends a program that ignored the interrupt: nothing is lost but itself, so the sandbox need not go for it."""
    with anyio.move_on_after(_KILL, shield=True), contextlib.suppress(SandboxLost):
        await process.kill()
        await process.wait()
        return True
    return False


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
