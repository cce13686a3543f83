"""One run, from the request to its end: drained, bounded, interrupted, once for all backends."""

import codecs
import signal
from dataclasses import dataclass
from typing import Literal

import anyio
from anyio.abc import ByteReceiveStream

from ..backends.base import Process
from ..errors import SandboxLost
from ..results import StreamName
from .protocol import FrameParser, Report, decode_report
from .requests import RunRequest

_AT_ONCE = 4096
"""Bytes of a request that a pipe takes at once, since its reader took all that came before."""

_LINGER = 0.05
"""Seconds to wait for the streams' end after the process ended: a child of the code can hold them open for ever."""

_SETTLED = 0.1
"""Seconds beyond the grace for the last signal to have come; a sandbox that is so busy is not used again."""

_DROPPED = 0.002
"""Seconds to wait after each portion past the limit: to print is cheap, and costs engines and us far more."""

Ending = Literal["answered", "exited", "lost", "timeout", "cpu_limit", "output_limit", "cancelled"]
"""`answered`: the runner reported. `exited`: its process ended instead. `lost`: the whole sandbox did."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one run ended, as seen from outside the sandbox."""

    ending: Ending
    report: Report | None
    begun: bool
    """Whether the runner read the request; where it did not, the code never ran."""
    exit_code: int | None
    """Of the runner's process, where that ended."""
    alive: bool
    """Whether the runner is ready for another request: it answered, be it to an interrupt."""
    stdout: bytes
    stderr: bytes
    dropped: int
    """Bytes printed past the limit, while the code was being stopped."""
    duration: float


class Run:
    """One request to a runner under way. `stop` ends it from outside."""

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
        self._settled = True

    def stop(self, reason: Ending = "cancelled") -> None:
        """Interrupts the code, then kills it if it does not answer; `finish` returns with that reason."""
        self._stopped = self._stopped or reason
        self._scope.cancel()

    async def finish(self) -> Outcome:
        """Drives the run to its end, at most its timeout and the grace.

        Cancelled from outside, it first stops the code in the same way. An exception of the output callback stops the
        run and is raised.
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
        if self._callback_error is not None:
            raise self._callback_error
        return self._outcome(anyio.current_time() - start)

    @property
    def answered(self) -> bool:
        """Whether the runner said that it is done, so that it can be asked again."""
        return self._settled and all(stream.parser.done for stream in self._streams)

    @property
    def exited(self) -> bool:
        """Whether the process itself has ended."""
        return self._exit_code is not None

    @property
    def _drained(self) -> bool:
        return all(stream.drained.is_set() for stream in self._streams)

    async def _interrupt(self) -> None:
        deadline = anyio.current_time() + self._grace
        # Twice: the first is not heard by a runner that has yet to read its request, or to start a child. The second
        # comes half way: it breaks off what code does to clean up, and the answer to it has as long as that had.
        for until in (deadline - self._grace / 2, deadline):
            with anyio.CancelScope(shield=True, deadline=until):
                try:
                    await self._process.signal(signal.SIGINT)
                    await self._converse()
                except SandboxLost:
                    self._ended = "lost"
            if self._ended is not None:
                break
        if self._ended == "answered":
            # It may have ended by itself while the interrupt was on its way.
            self._settled = False
            with anyio.CancelScope(shield=True, deadline=deadline + _SETTLED):
                await self._process.settle()
                self._settled = True

    async def _converse(self) -> None:
        """Goes on with the exchange; cancelled, it can be called again and nothing is lost."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._await_exit, tasks.cancel_scope)
            # Each task costs every run a little: what can go on in this one needs none of its own.
            stdout, stderr = self._streams
            tasks.start_soon(self._read, stderr)
            if len(self._unsent) <= _AT_ONCE:
                await self._send()
            else:
                tasks.start_soon(self._send)
            await self._read(stdout)
            if not stderr.drained.is_set():
                await stderr.drained.wait()
            if self.answered:
                self._ended = "answered"
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
        # What ends by itself is not cancelled, which would cost it some turns of the loop.
        if self._unsent or not self._drained:
            scope.cancel()

    async def _read(self, stream: "_Stream") -> None:
        while not stream.parser.done:
            try:
                data = await stream.source.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError):  # closed with its sandbox, at the end of a session
                await self._keep(stream, stream.parser.flush(), final=True)
                break
            await self._keep(stream, stream.parser.feed(data), final=False)
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
            report=decode_report(bytes(stdout.parser.payload)) if self.answered else None,
            begun=stdout.parser.begun,
            exit_code=self._exit_code,
            alive=self.answered,
            stdout=bytes(stdout.kept),
            stderr=bytes(stderr.kept),
            dropped=stdout.dropped + stderr.dropped,
            duration=duration,
        )


class _Stream:
    def __init__(self, name: StreamName, source: ByteReceiveStream, nonce: str) -> None:
        self.name: StreamName = name
        self.source = source
        self.parser = FrameParser(nonce)
        self.drained = anyio.Event()
        """Set at its end, or at the runner's word that no more follows."""
        self.kept = bytearray()
        self.dropped = 0
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
