"""How a run ends, on a fake process."""

import asyncio
import math
import signal
from contextlib import suppress
from typing import cast

import anyio
import pytest
from anyio.abc import ByteReceiveStream, ByteSendStream

from llm_sandbox_mcp.backends.base import Process
from llm_sandbox_mcp.base.errors import EngineUnavailable, StartFailed
from llm_sandbox_mcp.base.messages import Problem
from llm_sandbox_mcp.runs.kernel import Kernel
from llm_sandbox_mcp.runs.requests import RunRequest
from llm_sandbox_mcp.runs.run import Outcome, Run
from tests.memory.backend import MemoryBackend, MemoryProcess, Program
from tests.memory.clock import BACKEND
from tests.unit.policies import POLICY

pytestmark = pytest.mark.anyio

NONCE = "0123456789abcdef" * 2
BOUND = 30.0


class Stream:
    """The output of one stream, portion by portion."""

    def __init__(self) -> None:
        self.send, self._portions = anyio.create_memory_object_stream[bytes](math.inf)

    async def receive(self) -> bytes:
        return await self._portions.receive()

    def close(self) -> None:
        self.send.close()
        self._portions.close()


class Interruptible(Process):
    """A runner that answers only when it is interrupted."""

    def __init__(self, *, settles: bool = True, after: bytes = b"") -> None:
        """`after` is what other processes print at the end."""
        self._settles = settles
        self._after = after
        self._streams = Stream(), Stream()
        self.stdin = cast(ByteSendStream, self)
        self.stdout, self.stderr = (cast(ByteReceiveStream, stream) for stream in self._streams)

    async def send(self, item: bytes) -> None:
        """Accepts the request."""

    async def print(self, data: bytes, stream: int = 0) -> None:
        await self._streams[stream].send.send(data)

    async def wait(self) -> int:
        await anyio.sleep_forever()
        raise AssertionError

    @property
    def running(self) -> bool:
        return True

    async def signal(self, number: signal.Signals) -> None:
        self.answer()

    def answer(self, report: bytes = b'{"status": "error", "exit_code": 130}') -> None:
        for stream, payload in zip(self._streams, (report, b""), strict=True):
            stream.send.send_nowait(f"\x1e{NONCE}.{len(payload)}\n".encode() + payload)
            stream.send.send_nowait(self._after)

    async def settle(self) -> None:
        if not self._settles:
            await anyio.sleep_forever()

    async def aclose(self) -> None:
        for stream in self._streams:
            stream.close()


@pytest.mark.parametrize("settles", [True, False])
async def test_a_runner_is_used_again_only_if_no_signal_can_still_arrive(settles: bool) -> None:
    async with Interruptible(settles=settles) as process:
        with anyio.fail_after(BOUND):
            outcome = await Run(process, b"{}\n", NONCE, RunRequest("", timeout=0.01, output=100, grace=0.1)).finish()
    assert (outcome.ending, outcome.alive) == ("timeout", settles)


@pytest.mark.parametrize(("after", "floods"), [(b"a line of a server\n", False), (b"y\n" * 4096, True)])
async def test_a_runner_whose_streams_others_go_on_flooding_is_not_used_again(after: bytes, floods: bool) -> None:
    async with Interruptible(after=after) as process:
        await process.print(b"x" * 200)
        with anyio.fail_after(BOUND):
            outcome = await Run(process, b"{}\n", NONCE, RunRequest("", timeout=BOUND, output=100, grace=5)).finish()
    assert (outcome.ending, outcome.floods, outcome.alive) == ("output_limit", floods, not floods)
    assert (outcome.stdout, outcome.dropped) == (b"x" * 100, 100)
    assert outcome.report is not None


async def test_a_runner_that_reports_the_end_of_its_interpreter_is_not_used_again() -> None:
    async with Interruptible() as process:
        process.answer(b'{"status": "error", "exit_code": 5, "ended": true, "files": ["late"]}')
        with anyio.fail_after(BOUND):
            outcome = await Run(process, b"{}\n", NONCE, RunRequest("", timeout=BOUND, output=100, grace=5)).finish()
    assert (outcome.ending, outcome.exit_code, outcome.alive, outcome.ended) == ("exited", 5, False, True)
    assert outcome.report is not None and outcome.report.files == ("late",)


async def test_output_is_passed_on_in_the_order_in_which_it_appears() -> None:
    taken = list[str]()

    async def take(stream: str, text: str) -> None:
        taken.append(text)

    async with Interruptible() as process, anyio.create_task_group() as tasks:
        request = RunRequest("", timeout=BOUND, output=100, grace=5, on_output=take)
        tasks.start_soon(Run(process, b"{}\n", NONCE, request).finish)
        for stream, text in ((1, b"one "), (0, b"two "), (1, b"three "), (0, b"four ")):
            await anyio.wait_all_tasks_blocked()
            await process.print(text, stream)
        await anyio.wait_all_tasks_blocked()
        process.answer()
    assert taken == ["one ", "two ", "three ", "four "]


async def test_what_takes_output_may_take_longer_than_most_runs_and_is_not_broken_off() -> None:
    taken = list[str]()

    async def take(stream: str, text: str) -> None:
        await anyio.sleep(0.1)
        taken.append(text)

    async with Interruptible() as process:
        await process.print(b"one ")
        process.answer()
        request = RunRequest("", timeout=BOUND, output=100, grace=5, on_output=take)
        with anyio.fail_after(BOUND):
            outcome = await Run(process, b"{}\n", NONCE, request).finish()
    assert (outcome.ending, outcome.stdout, taken) == ("answered", b"one ", ["one "])


async def test_output_that_was_read_when_its_run_is_stopped_is_kept() -> None:
    async with Interruptible() as process, anyio.create_task_group() as tasks:
        run = Run(process, b"{}\n", NONCE, RunRequest("", timeout=BOUND, output=100, grace=5))
        await process.print(b"one")
        outcomes = list[Outcome]()

        async def finish() -> None:
            outcomes.append(await run.finish())

        tasks.start_soon(finish)
        await anyio.wait_all_tasks_blocked()
        run.stop()
    assert [(outcome.ending, outcome.stdout) for outcome in outcomes] == [("cancelled", b"one")]


class Cleaning(Interruptible):
    """A runner that needs so many interrupts, and some time after the last one it needs."""

    def __init__(self, needs: int) -> None:
        super().__init__()
        self._needs = needs
        self.interrupts = 0

    async def signal(self, number: signal.Signals) -> None:
        self.interrupts += 1
        if self.interrupts == self._needs:
            asyncio.get_running_loop().call_later(0.01, self.answer)


@pytest.mark.parametrize("anyio_backend", [BACKEND], ids=["clock that jumps"])
@pytest.mark.parametrize("needs", [1, 2], ids=["slow cleanup", "missed interrupt"])
async def test_code_is_interrupted_again_only_if_half_of_the_grace_has_passed(needs: int) -> None:
    async with Cleaning(needs) as process:
        request = RunRequest("", timeout=0.01, output=100, grace=10)
        with anyio.fail_after(BOUND):
            outcome = await Run(process, b"{}\n", NONCE, request).finish()
    assert (outcome.ending, outcome.alive, process.interrupts) == ("timeout", True, needs)


class Exiting(Interruptible):
    """A process that ends, while others have its output open, or with input that it has not read."""

    def __init__(self, reads: bool) -> None:
        super().__init__()
        self._reads = reads
        if not reads:
            for stream in self._streams:
                stream.send.close()

    async def send(self, item: bytes) -> None:
        if not self._reads:
            await anyio.sleep_forever()

    async def wait(self) -> int:
        return 3


@pytest.mark.parametrize("reads", [True, False], ids=["output stays open", "input is not read"])
async def test_a_run_ends_with_its_process(reads: bool) -> None:
    request = RunRequest("", timeout=2 * BOUND, output=100, grace=0.1)
    async with Exiting(reads) as process:
        with anyio.fail_after(BOUND):
            outcome = await Run(process, b"x" * 8192, NONCE, request).finish()
    assert (outcome.ending, outcome.exit_code) == ("exited", 3)


class Unheard(Interruptible):
    """A runner whose engine is silent."""

    async def signal(self, number: signal.Signals) -> None:
        """Does not arrive."""

    async def silence(self) -> Problem:
        return Problem("the engine does not answer", "start it")


async def test_a_runner_is_not_blamed_at_its_check_for_the_silence_of_its_engine() -> None:
    async with Unheard() as process:
        with anyio.fail_after(BOUND), pytest.raises(EngineUnavailable, match="the engine does not answer; start it"):
            await Kernel(process).check(0.01)


async def cat(process: MemoryProcess) -> int:
    """Prints its input, and ends with it; an interrupt does nothing."""
    process.interrupted = lambda: None
    with suppress(anyio.EndOfStream):
        while True:
            await process.print(await process.receive())
    return 0


@pytest.mark.parametrize("size", [0, 5, 64 * 4096 + 1])
async def test_the_input_of_a_program_arrives_whole_and_ends(size: int) -> None:
    given = b"x" * size
    async with MemoryBackend({"cat": cat}).sandbox(POLICY) as sandbox, await sandbox.spawn(["cat"], {}) as process:
        request = RunRequest("", timeout=BOUND, output=2 * size, grace=0)
        outcome = await Run(process, given, NONCE, request, close_stdin=True).finish()
    assert (outcome.ending, outcome.exit_code, outcome.stdout) == ("exited", 0, given)


async def test_the_input_of_a_runner_stays_open_for_its_next_request() -> None:
    async with MemoryBackend({"cat": cat}).sandbox(POLICY) as sandbox, await sandbox.spawn(["cat"], {}) as process:

        async def stop(stream: str, text: str) -> None:
            run.stop()

        run = Run(process, b"{}\n", NONCE, RunRequest("", timeout=BOUND, output=100, grace=0, on_output=stop))
        assert (await run.finish()).stdout == b"{}\n"
        await process.stdin.send(b"more")
        assert await process.stdout.receive() == b"more"


async def stumble(process: MemoryProcess) -> int:
    """Complains, and ends without an answer."""
    await process.print(b"loading\nno such module\n\n", "stderr")
    return 1


async def ponder(process: MemoryProcess) -> int:
    """Neither answers nor ends."""
    await anyio.sleep_forever()
    return 0


@pytest.mark.parametrize("anyio_backend", [BACKEND], ids=["clock that jumps"])
@pytest.mark.parametrize(
    ("program", "why"), [(stumble, r"\(exited\): no such module"), (ponder, r"\(timeout\): it printed nothing")]
)
async def test_a_runner_that_does_not_answer_its_check_is_reported_with_its_last_line(
    program: Program, why: str
) -> None:
    engine = MemoryBackend({"runner": program})
    async with engine.sandbox(POLICY) as sandbox, await sandbox.spawn(["runner"], {}) as process:
        with pytest.raises(StartFailed, match=rf"^the runner does not answer {why}$"):
            await Kernel(process).check(5)
