"""A language whose programs list what a run should do: each line is a verb and its words."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import anyio
import anyio.lowlevel

from llm_sandbox_mcp.backends.base import Fullness, Usage

_PIECE = 1 << 16
_FRAME = 9999
"""Maximum number of bytes in a frame's payload."""


class Around(Protocol):
    """The sandbox in which the runner runs, as far as code changes it."""

    used: Usage
    full: Fullness
    answers: bool

    async def kill(self) -> None: ...


class Host(Protocol):
    """The process in which the runner runs."""

    @property
    def sandbox(self) -> Around: ...

    interrupted: Callable[[], None] | None
    modules: Sequence[str]

    async def receive(self) -> bytes: ...

    async def print(self, data: bytes, stream: str = "stdout") -> None: ...


class _Exit(Exception):
    """The code ends its runner."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Runner:
    """Reads requests and answers them, like every runner. See `handlers/README.md`."""

    def __init__(self, process: Host) -> None:
        self._process = process
        self._values: dict[str, str] = {}
        self._loaded = [*process.modules]
        self._left = b""
        self._deaf = False
        self._interrupted = False
        self._scope: anyio.CancelScope | None = None
        process.interrupted = self._interrupt

    async def serve(self) -> int:
        """Answers requests until the input ends or code ends the runner; returns the exit code."""
        waiting = b""
        while True:
            while b"\n" not in waiting:
                try:
                    waiting += await self._process.receive()
                except anyio.EndOfStream:
                    return 0
            line, _, waiting = waiting.partition(b"\n")
            try:
                await self._answer(json.loads(line))
            except _Exit as end:
                return end.code

    async def _answer(self, request: dict[str, str]) -> None:
        nonce = request["nonce"].encode()
        self._interrupted = self._deaf = False
        report: dict[str, object] = {"status": "ok", "exit_code": 0}
        # The first frame reports that the run has begun.
        await self._process.print(b"\x1e%s+0\n" % nonce)
        with anyio.CancelScope() as self._scope:
            for line in request.get("preload", request["code"]).splitlines():
                verb, _, words = line.strip().partition(" ")
                if verb:
                    await getattr(self, f"_do_{verb}")(words, report)
            if "preload" in request:
                self._loaded.append(request["preload"])
                report.setdefault("preloaded", {"memory": 1000, "missed": []})
            await anyio.lowlevel.checkpoint()
            if request.get("last"):
                await self._process.print(self._left)
        if self._interrupted:
            report = {"status": "error", "exit_code": 130, "interrupted": True}
        report["waits"] = bool(report.get("waits")) and not request.get("last")
        payload = b"no report" if report.get("garbage") else json.dumps(report).encode()
        await self._process.print(b"\x1e%s.%d\n" % (nonce, len(payload)) + payload)
        await self._process.print(b"\x1e%s.0\n" % nonce, "stderr")

    def _interrupt(self) -> None:
        if self._deaf or self._scope is None:
            return
        self._interrupted = True
        self._scope.cancel()

    async def _do_print(self, words: str, report: dict[str, object]) -> None:
        await self._process.print(f"{words}\n".encode())

    async def _do_loaded(self, words: str, report: dict[str, object]) -> None:
        """Prints the modules that this runner has imported."""
        await self._process.print(f"{' '.join(self._loaded)}\n".encode())

    async def _do_write(self, words: str, report: dict[str, object]) -> None:
        """Prints a text of JSON, so many times."""
        text, _, times = words.rpartition(" ")
        await self._process.print(json.loads(text).encode() * int(times))

    async def _do_leave(self, words: str, report: dict[str, object]) -> None:
        """Leaves something to be printed when the interpreter exits."""
        self._left += f"{words}\n".encode()
        report["waits"] = True

    async def _do_complain(self, words: str, report: dict[str, object]) -> None:
        await self._process.print(f"{words}\n".encode(), "stderr")

    async def _do_flood(self, words: str, report: dict[str, object]) -> None:
        """Prints forever."""
        while True:
            await self._process.print(b"x" * _PIECE)
            await anyio.lowlevel.checkpoint()

    async def _do_set(self, words: str, report: dict[str, object]) -> None:
        name, _, value = words.partition(" ")
        self._values[name] = value

    async def _do_get(self, words: str, report: dict[str, object]) -> None:
        report["result"] = self._values.get(words)

    async def _do_sleep(self, words: str, report: dict[str, object]) -> None:
        await anyio.sleep(float(words))

    async def _do_work(self, words: str, report: dict[str, object]) -> None:
        """Uses the processor for some seconds."""
        for _ in range(int(float(words) * 10)):
            await anyio.sleep(0.1)
            sandbox = self._process.sandbox
            sandbox.used = replace(sandbox.used, cpu=(sandbox.used.cpu or 0.0) + 0.1)

    async def _do_deaf(self, words: str, report: dict[str, object]) -> None:
        """Ignores interrupts from here on."""
        self._deaf = True

    async def _do_fail(self, words: str, report: dict[str, object]) -> None:
        report.update(status="error", exit_code=int(words or "1"))

    async def _do_garble(self, words: str, report: dict[str, object]) -> None:
        report["garbage"] = True

    async def _do_report(self, words: str, report: dict[str, object]) -> None:
        """Adds what no runner would report."""
        report.update(json.loads(words))

    async def _do_exit(self, words: str, report: dict[str, object]) -> None:
        raise _Exit(int(words or "0"))

    async def _do_replace(self, words: str, report: dict[str, object]) -> None:
        """The code ends its interpreter, and the runner still reports that."""
        report |= {"status": "error", "exit_code": int(words), "ended": True}

    async def _do_die(self, words: str, report: dict[str, object]) -> None:
        """Ends the whole sandbox."""
        await self._process.sandbox.kill()
        await anyio.lowlevel.checkpoint()

    async def _do_hide(self, words: str, report: dict[str, object]) -> None:
        """The sandbox no longer reports its counts."""
        self._process.sandbox.answers = False

    async def _do_outgrow(self, words: str, report: dict[str, object]) -> None:
        """Is killed at the memory limit; with `all`, together with its sandbox, with `child`, only what it started."""
        sandbox = self._process.sandbox
        sandbox.used = replace(sandbox.used, oom_kills=sandbox.used.oom_kills + 1)
        if words == "all":
            await sandbox.kill()
        if words != "child":
            raise _Exit(137)

    async def _do_fill(self, words: str, report: dict[str, object]) -> None:
        """Fails at the disk limit."""
        self._process.sandbox.full = replace(self._process.sandbox.full, disk=True)
        report.update(status="error", exit_code=1)

    async def _do_crowd(self, words: str, report: dict[str, object]) -> None:
        """Makes this number of files."""
        self._process.sandbox.full = replace(self._process.sandbox.full, entries=int(words))

    async def _do_fork(self, words: str, report: dict[str, object]) -> None:
        """Fails because another process is refused."""
        sandbox = self._process.sandbox
        sandbox.used = replace(sandbox.used, pids_refused=sandbox.used.pids_refused + 1)
        report.update(status="error", exit_code=1)
