"""One run, from the request to its end, for all backends: reads its output, applies its limits, interrupts it."""

import codecs
import math
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import anyio
from anyio.abc import ByteReceiveStream

from ..backends.base import Process
from ..base.errors import SandboxLost
from ..base.messages import Problem
from ..base.results import StreamName
from .protocol import FrameParser, Report, decode_report
from .requests import RunRequest

_AT_ONCE = 4096
"""Bytes of a request that a pipe takes without waiting, since its reader has read everything before."""

_SOON = 0.005
"""Seconds in which most runs are answered: only for others it is worth a task to look whether the process ends."""

_LINGER = 0.05
"""Seconds to wait for EOF on the streams after the process ended: a child of the code can keep them open forever."""

_SETTLED = 0.1
"""Seconds after the grace for the last signal to arrive; a sandbox that needs longer is too busy to be used again."""

_DROPPED = 0.002
"""Seconds to wait after each portion past the limit: printing is cheap, but costs engines and the server far more."""

_AFTERMATH = 0.1
"""Seconds after the answer to look whether a flood goes on: processes that the code started do not all stop with it."""
_TRICKLE = 4096
"""Bytes that processes may print in that time; more is a flood."""

Ending = Literal["answered", "exited", "lost", "timeout", "cpu_limit", "output_limit", "cancelled"]
"""`answered`: the runner reported. `exited`: its process ended instead. `lost`: the whole sandbox ended."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one run ended, as seen from outside the sandbox."""

    ending: Ending
    report: Report | None
    begun: bool
    """Whether the runner read the request; if not, the code never ran."""
    exit_code: int | None
    """The exit code of the runner's process, if it ended."""
    alive: bool
    """Whether the runner is ready for another request: it answered, even if only after an interrupt, and its streams
    are its own again."""
    stdout: bytes
    stderr: bytes
    dropped: int
    """Bytes printed past the limit, while the code was being stopped."""
    duration: float
    floods: bool = False
    """Whether processes that the code left running went on flooding its streams after the runner's answer."""
    silence: Problem | None = None
    """Why the engine passed nothing on: then it is unknown what the code did and does."""
    signalled: bool | None = None
    """Whether a signal ended that process; None if the engine does not tell."""
    program: bool = False
    """Whether the code was a program of its own, whose exit code this is, and not run in an interpreter."""

    @property
    def ended(self) -> bool:
        """Whether the interpreter ended by itself, in whatever way the run ended."""
        return self.ending == "exited" or (self.report is not None and self.report.ended)


class Run:
    """One request to a runner, in progress. `stop` ends it from outside."""

    def __init__(
        self,
        process: Process,
        stdin: bytes,
        nonce: str,
        request: RunRequest,
        *,
        close_stdin: bool = False,
    ) -> None:
        self._process = process
        self._unsent = memoryview(stdin)
        self._streams = _Stream("stdout", process.stdout, nonce), _Stream("stderr", process.stderr, nonce)
        self._timeout = request.timeout
        self._budget = request.output
        self._grace = request.grace
        self._on_output = request.on_output
        self._close_stdin = close_stdin
        self._scope = anyio.CancelScope()
        self._stopped: Ending | None = None
        self._callback_error: Exception | None = None
        self._exit_code: int | None = None
        self._ended: Ending | None = None
        self._report: Report | None = None
        self._settled = True
        self._floods = False
        self.silence: Problem | None = None
        """Why the engine passes nothing on, so that nothing is known of the code; None if it does."""

    def stop(self, reason: Ending = "cancelled") -> None:
        """Interrupts the code, then kills it if it does not answer; `finish` returns with that reason."""
        self._stopped = self._stopped or reason
        self._scope.cancel()

    async def finish(self) -> Outcome:
        """Drives the run to its end; this takes at most its timeout and the grace, and some seconds if the engine
        has to be asked whether it answers.

        If it is cancelled from outside, it first stops the code in the same way. An exception of the output callback
        stops the run and is raised.
        """
        start = anyio.current_time()
        self._scope.deadline = start + self._timeout
        try:
            with self._scope:
                await self._converse()
        except anyio.get_cancelled_exc_class():
            await self._interrupt()
            raise
        if self._ended is None:
            self._stopped = self._stopped or "timeout"
            await self._interrupt()
        if self._stopped == "output_limit" and self._answered:
            await self._look_for_floods()
        if self._callback_error is not None:
            raise self._callback_error
        return self._outcome(anyio.current_time() - start)

    async def catch_up(self) -> None:
        """Takes in the late answer of a run that ended with the engine's silence; nobody is told its output."""
        self._on_output = None
        # Asked first: an interrupt that is not passed on would only wait, with others, for the engine to continue.
        self.silence = await self._process.silence()
        if not self.silence:
            await self._interrupt()

    @property
    def alive(self) -> bool:
        """Whether the runner reported that it is done, so that it can take another request."""
        return self._answered and not self._floods and not (self._report and self._report.ended)

    @property
    def _answered(self) -> bool:
        return self._settled and all(stream.parser.done for stream in self._streams)

    @property
    def exited(self) -> bool:
        """Whether the process itself has ended."""
        return self._exit_code is not None

    @property
    def _drained(self) -> bool:
        return all(stream.drained.is_set() for stream in self._streams)

    async def _interrupt(self) -> None:
        deadline = await self._interrupt_twice(self._grace)
        if self._ended is None:
            asked_at = anyio.current_time()
            with anyio.CancelScope(shield=True):
                self.silence = await self._process.silence()
            if not self.silence:
                # As long as that took: an engine that has just continued passes on what it held back.
                deadline = await self._interrupt_twice(anyio.current_time() - asked_at)
        if self._ended == "answered":
            # The run may have ended by itself while the interrupt was on its way.
            self._settled = False
            with anyio.CancelScope(shield=True, deadline=deadline + _SETTLED):
                await self._process.settle()
                self._settled = True

    async def _interrupt_twice(self, seconds: float) -> float:
        """Interrupts the code, and waits for the answer so many seconds; returns until when that was."""
        deadline = anyio.current_time() + seconds
        # Twice: a runner that has not read its request yet, or not started a child yet, misses the first. The second
        # comes after half of the time: it breaks off the cleanup of the code, and the answer has the other half.
        for until in (deadline - seconds / 2, deadline):
            with anyio.CancelScope(shield=True, deadline=until):
                try:
                    await self._process.signal(signal.SIGINT)
                    await self._converse()
                except SandboxLost:
                    self._ended = "lost"
            if self._ended is not None:
                break
        return deadline

    async def _look_for_floods(self) -> None:
        """Reads on for a moment: what comes now would be in the output of every later run."""
        left = _TRICKLE

        async def read(source: ByteReceiveStream, scope: anyio.CancelScope) -> None:
            nonlocal left
            with suppress(anyio.EndOfStream, anyio.ClosedResourceError):
                while left >= 0:
                    left -= len(await source.receive())
            if left < 0:
                scope.cancel()

        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _AFTERMATH):
            async with anyio.create_task_group() as tasks:
                for stream in self._streams:
                    tasks.start_soon(read, stream.source, tasks.cancel_scope)
        self._floods = left < 0

    async def _converse(self) -> None:
        """Continues the exchange; if it is cancelled, it can be called again and nothing is lost."""
        stdout, stderr = self._streams
        async with anyio.create_task_group() as tasks:
            # Each task costs every run some time, so whatever can run in this task does not get its own.
            tasks.start_soon(self._read, stderr)
            if len(self._unsent) <= _AT_ONCE:
                await self._send()
            else:
                tasks.start_soon(self._send)
            soon = anyio.current_time() + _SOON
            await self._read(stdout, soon)
            with anyio.CancelScope(deadline=soon):
                await stderr.drained.wait()
            if not (at_once := self._answered):
                tasks.start_soon(self._await_exit, tasks.cancel_scope)
                await self._read(stdout)
                await stderr.drained.wait()
            if self._answered:
                self._report = decode_report(bytes(stdout.parser.payload))
                self._ended = "answered"
                if self._report and self._report.ended:
                    self._ended, self._exit_code = "exited", self._report.exit_code
                if not at_once or self._unsent:
                    tasks.cancel_scope.cancel()

    async def _send(self) -> None:
        try:
            while self._unsent:
                portion = self._unsent[:_AT_ONCE]
                await self._process.stdin.send(bytes(portion))
                self._unsent = self._unsent[len(portion) :]
            if self._close_stdin:
                await self._process.stdin.aclose()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the process has ended, which another task reports

    async def _await_exit(self, scope: anyio.CancelScope) -> None:
        try:
            self._exit_code = await self._process.wait()
            ended: Ending = "exited"
        except SandboxLost:
            ended = "lost"
        if not self._drained:
            with anyio.move_on_after(_LINGER):
                for stream in self._streams:
                    await stream.drained.wait()
        self._ended = self._ended or ended
        # Tasks that end by themselves are not cancelled: that would cost some turns of the event loop.
        if self._unsent or not self._drained:
            scope.cancel()

    async def _read(self, stream: "_Stream", until: float = math.inf) -> None:
        """Reads until the runner says that no more follows; or waits for more only so long."""
        while not (stream.parser.done or stream.drained.is_set()):
            data, final = b"", False
            with anyio.CancelScope(deadline=until) as waiting:
                try:
                    data = await stream.source.receive()
                except (anyio.EndOfStream, anyio.ClosedResourceError):  # closed with the sandbox when a session ends
                    final = True
            if waiting.cancelled_caught:
                return
            await self._keep(stream, stream.parser.flush() if final else stream.parser.feed(data), final=final)
            if final:
                break
        stream.drained.set()

    async def _keep(self, stream: "_Stream", data: bytes, *, final: bool) -> None:
        kept = data[: self._budget]
        self._budget -= len(kept)
        stream.kept += kept
        stream.dropped += len(data) - len(kept)
        if len(kept) < len(data):
            self.stop("output_limit")
        if (
            self._on_output is not None
            and self._callback_error is None
            and (text := stream.decoder.decode(kept, final))
        ):
            try:
                await self._on_output(stream.name, text)
            except Exception as error:
                self._callback_error = error
                self.stop()
        if len(kept) < len(data):
            await anyio.sleep(_DROPPED)

    def _outcome(self, duration: float) -> Outcome:
        stdout, stderr = self._streams
        return Outcome(
            ending=self._stopped or self._ended or "lost",
            report=self._report if self._answered else None,
            begun=stdout.parser.begun,
            exit_code=self._exit_code,
            alive=self.alive,
            stdout=bytes(stdout.kept),
            stderr=bytes(stderr.kept),
            dropped=stdout.dropped + stderr.dropped,
            duration=duration,
            floods=self._floods,
            silence=self.silence,
            signalled=self._process.signalled,
        )


class _Stream:
    def __init__(self, name: StreamName, source: ByteReceiveStream, nonce: str) -> None:
        self.name: StreamName = name
        self.source = source
        self.parser = FrameParser(nonce)
        self.drained = anyio.Event()
        """Set at EOF, or when the runner reports that no more output follows."""
        self.kept = bytearray()
        self.dropped = 0
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
