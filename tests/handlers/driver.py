"""Starts a runner as a plain process and speaks the protocol of `handlers/README.md` with it.

    with start("javascript", tmp_path) as runner:
        run = runner.run("1 + 1")
        assert run.result == "2"

A frame is these bytes, without spaces: 0x1E, nonce, kind, length, 0x0A, payload.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import select
import shutil
import signal
import subprocess
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import pytest

from tests.signals import usual_signals

HANDLERS = Path(__file__).resolve().parents[2] / "handlers"
LIMIT = 60.0
"""Seconds that a single step can take before the test fails."""
SECOND_INTERRUPT = 1.25
"""Seconds after which the server interrupts again: bash, for one, loses a signal that arrives between fork and exec."""
LARGEST_FRAME = 4096

Stream = Literal["stdout", "stderr"]


class RunnerEnded(Exception):
    """The runner closed its streams before the end of the run."""


class ProtocolError(Exception):
    """The runner wrote something that the protocol forbids."""


@dataclass(frozen=True)
class Run:
    """The output of one run, and the runner's report on it."""

    stdout: bytes
    stderr: bytes
    report: dict[str, Any]

    @property
    def out(self) -> str:
        return self.stdout.decode()

    @property
    def err(self) -> str:
        return self.stderr.decode()

    @property
    def status(self) -> str:
        return str(self.report["status"])

    @property
    def exit_code(self) -> int:
        return int(self.report["exit_code"])

    @property
    def result(self) -> str | None:
        value = self.report["result"]
        assert value is None or isinstance(value, str)
        return value

    @property
    def interrupted(self) -> bool:
        return bool(self.report["interrupted"])

    @property
    def files(self) -> list[str]:
        return sorted(self.report["files"])


class _Channel:
    """One output stream of the runner, split into output and frames."""

    def __init__(self) -> None:
        self.output = bytearray()
        self.closed = False
        self._pending = bytearray()
        self._payload = bytearray()
        self._start = b""
        self.begun = False
        self.payload: bytes | None = None

    def expect(self, nonce: str) -> None:
        self._start = b"\x1e" + nonce.encode()
        self._payload.clear()
        self.begun = False
        self.payload = None

    def feed(self, data: bytes) -> None:
        self._pending += data
        while self.payload is None and self._take_frame():
            pass

    def _take_frame(self) -> bool:
        at = self._pending.find(self._start)
        if at < 0:
            # The end of the data may be the start of a frame that the read cut in two.
            keep = min(len(self._pending), len(self._start) - 1)
            cut = len(self._pending) - keep
            self.output += self._pending[:cut]
            del self._pending[:cut]
            return False
        self.output += self._pending[:at]
        del self._pending[:at]
        head_length = len(self._start)
        end = self._pending.find(b"\n", head_length)
        if end < 0:
            return False
        head = re.fullmatch(rb"([+.])([0-9]{1,4})", self._pending[head_length:end])
        if head is None:
            raise ProtocolError(f"frame head {bytes(self._pending[:end])!r}")
        frame_length = end + 1 + int(head[2])
        if frame_length > LARGEST_FRAME:
            raise ProtocolError(f"a frame of {frame_length} bytes")
        if len(self._pending) < frame_length:
            return False
        self._payload += self._pending[end + 1 : frame_length]
        del self._pending[:frame_length]
        if head[1] == b".":
            self.payload = bytes(self._payload)
        elif not self._payload.strip():
            self.begun = True
        return True

    def seen(self) -> bytes:
        return bytes(self.output + self._pending)

    def take(self) -> bytes:
        output = bytes(self.output)
        self.output.clear()
        return output


class Runner:
    """A live runner in its own session of processes; it and all that it started are killed when the block ends."""

    def __init__(self, argv: Sequence[str], workdir: Path, env: Mapping[str, str]) -> None:
        self.workdir = workdir
        self.cell = 0
        self.process = subprocess.Popen(
            argv,
            cwd=workdir,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            preexec_fn=usual_signals,
        )
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self._stdin = self.process.stdin
        self._channels = {"stdout": _Channel(), "stderr": _Channel()}
        self._names: dict[int, str] = {
            self.process.stdout.fileno(): "stdout",
            self.process.stderr.fileno(): "stderr",
        }
        self.nonce = ""
        self._interrupted = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, code: str, variables: Mapping[str, Any] | None = None, **asked: bool | str) -> Run:
        """Sends the code, with further keys of the request, and waits for the end of the run."""
        self.send(code, variables, **asked)
        return self.finish()

    def send(self, code: str, variables: Mapping[str, Any] | None = None, **asked: bool | str) -> None:
        """Sends the code and returns at once; `finish` waits for the end of the run."""
        self.cell += 1
        self._interrupted = False
        self.nonce = secrets.token_hex(16)
        for channel in self._channels.values():
            channel.expect(self.nonce)
        request = {"nonce": self.nonce, "cell": self.cell, "variables": dict(variables or {}), "code": code, **asked}
        line = json.dumps(request, ensure_ascii=False, separators=(",", ":")) + "\n"
        with contextlib.suppress(BrokenPipeError):  # it has ended, as `finish` will report
            self._stdin.write(line.encode())

    def finish(self) -> Run:
        """Waits for the last frame on both streams; if an interrupted run goes on, interrupts again as the server does."""
        channels = self._channels

        def ended() -> bool:
            return all(channel.payload is not None for channel in channels.values())

        if self._interrupted:
            self._interrupted = False
            with contextlib.suppress(TimeoutError):
                self._pump(ended, SECOND_INTERRUPT)
            if not ended():
                os.killpg(self.process.pid, signal.SIGINT)
        self._pump(ended)
        if not channels["stdout"].begun:
            raise ProtocolError("the report does not begin with an empty frame")
        if channels["stderr"].payload:
            raise ProtocolError("the frame on standard error has a payload")
        report = json.loads(channels["stdout"].payload or b"")
        keys = ["status", "exit_code", "result", "interrupted", "files", "files_omitted", "figures"]
        if list(report)[: len(keys)] != keys or not {*report} <= {*keys, "inspection", "preloaded", "waits", "ended"}:
            raise ProtocolError(f"the report's keys: {list(report)}")
        return Run(channels["stdout"].take(), channels["stderr"].take(), report)

    def wait_for(self, text: str, stream: Stream = "stdout") -> None:
        """Waits until the running code has printed the text."""
        channel = self._channels[stream]
        self._pump(lambda: text.encode() in channel.seen())

    def interrupt(self) -> None:
        """Sends SIGINT to the process group, as the server does."""
        self._interrupted = True
        os.killpg(self.process.pid, signal.SIGINT)

    def end_input(self) -> int:
        """Closes the runner's input and returns its exit code."""
        self._stdin.close()
        self._pump(lambda: not self._names)
        return self.process.wait(LIMIT)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream
            stream.close()
        self.process.wait(LIMIT)

    def _pump(self, done: Callable[[], bool], limit: float = LIMIT) -> None:
        deadline = time.monotonic() + limit
        while not done():
            if not self._names:
                raise RunnerEnded(f"exit code {self.process.wait(LIMIT)}; {self._seen()}")
            ready, _, _ = select.select(list(self._names), [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"nothing for {limit:g} s; {self._seen()}")
            for descriptor in ready:
                data = os.read(descriptor, 1 << 16)
                if data:
                    self._channels[self._names[descriptor]].feed(data)
                else:
                    del self._names[descriptor]

    def _seen(self) -> str:
        return ", ".join(f"{name} {channel.seen()[-2000:]!r}" for name, channel in self._channels.items())


def start(language: str, folder: Path, env: Mapping[str, str] | None = None, **places: str) -> Runner:
    """Starts the runner of a language as in its `handler.toml`, with its folders below `folder`.

    `env` is added to the environment; `places` replaces placeholders, as in `environment="/usr"`.
    """
    handler = HANDLERS / language
    definition = tomllib.loads((handler / "handler.toml").read_text())
    values = {
        name: str(folder / name)
        for name in ("environment", "libraries", "workdir", "tools", "home", "figures", "temporary")
    }
    values |= {"handler": str(handler), "index": "http://127.0.0.1:9/"} | places
    for name in ("libraries", "workdir", "home", "figures", "temporary"):
        Path(values[name]).mkdir(parents=True, exist_ok=True)

    def fill(text: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda match: values[match[1]], text)

    environment = {
        "PATH": f"{values['environment']}/bin:{os.environ['PATH']}",
        "HOME": values["home"],
        "LANG": "C.UTF-8",
        "SANDBOX_WORKDIR": values["workdir"],
        "SANDBOX_FIGURES": values["figures"],
        "SANDBOX_LIBRARIES": values["libraries"],
    }
    if " " not in values["temporary"]:  # R refuses spaces; it then leaves its files elsewhere
        environment["TMPDIR"] = values["temporary"]
    for variables in (definition.get("libraries", {}).get("env", {}), definition.get("env", {})):
        environment |= {name: fill(value) for name, value in variables.items()}
    environment |= env or {}
    argv = [fill(part) for part in definition["runner"]["argv"]]
    program = shutil.which(argv[0], path=environment["PATH"])
    if program is None:
        pytest.skip(f"{argv[0]} is not installed")
    return Runner([program, *argv[1:]], Path(values["workdir"]), environment)
