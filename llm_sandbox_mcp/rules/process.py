"""The server's side of the worker: starts the process, sends it requests, ends it, and replaces one that ended."""

import json
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from ..aio.tasks import open_tasks
from ..host import programs

_START = 30.0
_ANSWER = 60.0
"""Seconds of wall time. The kernel limits the worker's processor time; this is for a worker that does nothing."""
_LINE = 1 << 20


class OutOfTime(Exception):
    """The code took longer to judge than allowed."""


class Ended(Exception):
    """The worker ended instead of answering; the text says how."""


class Worker:
    """One process at a time, and one request at a time."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = json.dumps(settings).encode() + b"\n"
        self._process: Process | None = None
        self._answers: BufferedByteReceiveStream | None = None
        self._turn = anyio.Lock(fast_acquire=True)

    @property
    def pid(self) -> int | None:
        """The id of the process; None if there is none."""
        return self._process.pid if self._process is not None else None

    async def warm(self) -> None:
        """Starts the process if there is none, so that no run waits for it; a failure is raised by the next request."""
        async with self._turn:
            started = False
            try:
                with suppress(OutOfTime, Ended):
                    await self._started()
                    started = True
            finally:  # also if cancelled: the next caller cannot use a half-started worker
                if not started:
                    await self._end()

    async def problems(self) -> bytes:
        """What keeps it from judging code of some languages. Raises `OutOfTime` or `Ended`."""
        return await self.ask({}, b"")

    async def ask(self, request: Mapping[str, Any], code: bytes) -> bytes:
        """The answer to one request, which names the language of the code.

        Raises `OutOfTime` or `Ended`; the process is then gone, and the next request starts another.
        """
        async with self._turn:
            answered = False
            try:
                answers = await self._started()
                head = json.dumps({**request, "size": len(code)}).encode() + b"\n"
                line = await self._exchange(head + code, answers, _ANSWER)
                answered = True
                return line
            finally:
                # Without an answer, even if the caller was cancelled, nobody knows what the process would send next.
                if not answered:
                    await self._end()

    async def close(self) -> None:
        """Ends the process."""
        await self._end()

    async def _started(self) -> BufferedByteReceiveStream:
        if self._process is not None and self._process.returncode is not None:
            await self._end()
        if self._answers is None:
            try:
                # Shielded: a start that is cancelled half way would leave a process that nothing refers to.
                with anyio.CancelScope(shield=True):
                    process = self._process = await anyio.open_process(
                        programs.command(f"{__package__}.worker"),
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.DEVNULL,
                        env=programs.ENVIRONMENT,
                        cwd=programs.FOLDER,
                        start_new_session=True,
                    )
            except OSError as error:
                raise Ended(f"does not start: {error.strerror}") from error
            assert process.stdout is not None
            answers = BufferedByteReceiveStream(process.stdout)
            await self._exchange(self._settings, answers, _START)
            self._answers = answers
        return self._answers

    async def _exchange(self, data: bytes, answers: BufferedByteReceiveStream, seconds: float) -> bytes:
        """Sends to the process and reads its line at the same time: it can answer before it has read everything."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        stdin = process.stdin

        async def send() -> None:
            # The process may have ended; the other stream shows that.
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await stdin.send(data)

        line = b""
        with anyio.move_on_after(seconds):
            async with open_tasks() as tasks:
                tasks.start_soon(send)
                try:
                    line = await answers.receive_until(b"\n", _LINE)
                except (anyio.IncompleteRead, anyio.EndOfStream, anyio.BrokenResourceError, anyio.DelimiterNotFound):
                    await process.wait()
                tasks.cancel_scope.cancel()
        if line:
            return line
        if process.returncode in (None, -signal.SIGPROF):
            raise OutOfTime
        raise Ended(f"ended ({_how(process.returncode)})")

    async def _end(self) -> None:
        process, self._process, self._answers = self._process, None, None
        if process is not None:
            with anyio.CancelScope(shield=True):
                if process.returncode is None:
                    process.kill()
                await process.aclose()


def _how(code: int | None) -> str:
    return signal.Signals(-code).name if code is not None and code < 0 else f"status {code}"
