"""The program in a pod that gives another program its input, in frames, and ends with it; it runs on the host here."""

import contextlib
import os
import signal
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import quote_plus

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import Process

from llm_sandbox_mcp.backends.kubernetes.channels import FEEDER, feeder

pytestmark = pytest.mark.anyio


def frame(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


@asynccontextmanager
async def feeding(
    closes_input: bool, *argv: str, before: Sequence[str] = (), source: bytes = FEEDER, stdout: int = subprocess.PIPE
) -> AsyncIterator[Process]:
    """A feeder that has received itself, and starts a program."""
    command = [*before, *feeder(closes_input), *argv]
    with anyio.fail_after(60):
        async with await anyio.open_process(command, stdout=stdout, stderr=None) as process:
            assert process.stdin
            await process.stdin.send(frame(source))
            yield process


async def fed(program: str, *frames: bytes, open_end: bool = True) -> tuple[int, bytes]:
    """The feeder's exit code and its program's output for some frames; unless `open_end`, the input is closed."""
    async with feeding(not frames[-1], "sh", "-c", program) as process:
        assert process.stdin
        assert process.stdout
        with contextlib.suppress(anyio.BrokenResourceError):
            await process.stdin.send(b"".join(map(frame, frames)))
        if not open_end:
            await process.stdin.aclose()
        printed = b"".join([part async for part in process.stdout])
        return await process.wait(), printed


@pytest.mark.parametrize("frames", [(b"",), (b"one", b"two", b""), (bytes(300_000), b"x" * 70_000, b"")], ids=len)
async def test_a_feeder_passes_on_frames_and_their_end(frames: tuple[bytes, ...]) -> None:
    assert await fed("wc -c; exit 3", *frames) == (3, b"%d\n" % sum(map(len, frames)))


async def test_a_feeder_ends_with_its_program_even_if_more_is_sent() -> None:
    assert await fed("exit 5", *[bytes(1 << 16)] * 64) == (5, b"")


async def test_a_feeder_reports_the_signal_that_ended_its_program() -> None:
    assert await fed("kill -9 $$", b"") == (137, b"")


async def test_a_program_is_killed_when_the_frames_break_off() -> None:
    assert await fed("exec sleep 1000", b"without an end of input", open_end=False) == (137, b"")


async def test_a_feeder_ends_with_its_program_even_if_another_process_has_its_streams_open() -> None:
    code, printed = await fed("sleep 1000 & echo $!; exit 7", b"")
    assert code == 7
    os.kill(int(printed), signal.SIGKILL)


async def test_a_feeder_passes_on_all_that_its_program_printed() -> None:
    assert await fed("head -c 3000000 /dev/zero | tr '\\0' x", b"") == (0, b"x" * 3_000_000)


async def test_a_feeder_does_not_wait_if_nobody_reads_the_output_of_its_program() -> None:
    nobody, out = os.pipe()
    os.close(nobody)
    try:
        async with feeding(False, "sh", "-c", "trap '' PIPE; yes | head -c 1000000; exit 9", stdout=out) as process:
            assert await process.wait() == 9
    finally:
        os.close(out)


async def test_a_program_that_is_stopped_and_continued_is_not_treated_as_ended() -> None:
    assert await fed("(sleep 0.1; kill -CONT $$) & kill -STOP $$; echo on; exit 4", b"") == (4, b"on\n")


async def test_signals_end_the_program_and_not_its_feeder() -> None:
    signals = "for signal in HUP INT QUIT TERM USR1 PIPE ALRM PROF; do kill -$signal $PPID; done; "
    assert await fed(f"{signals} echo on; exit 3", b"") == (3, b"on\n")
    assert await fed("kill -HUP $$", b"") == (129, b"")


async def test_the_end_of_a_program_is_noticed_even_without_a_signal() -> None:
    deaf = "import os, signal, sys; signal.pthread_sigmask(0, {signal.SIGCHLD}); os.execvp(sys.argv[1], sys.argv[1:])"
    program = ("sh", "-c", "sleep 1000 & echo $!; exit 8")
    async with feeding(False, *program, before=(sys.executable, "-c", deaf)) as process:
        assert process.stdout
        printed = b"".join([part async for part in process.stdout])
        assert await process.wait() == 8
    os.kill(int(printed), signal.SIGKILL)


async def ended(process: Process) -> None:
    """Waits until a feeder has noticed the end of its program, which prints "over" first to show that it started."""
    assert process.stdout
    assert await process.stdout.receive() == b"over\n"
    children = anyio.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while await children.read_text():
        await anyio.lowlevel.checkpoint()


async def test_input_that_arrives_after_the_end_of_a_program_is_read_to_its_end() -> None:
    data = frame(bytes(1 << 16))
    async with feeding(False, "sh", "-c", "exec <&-; echo over; exit 6") as process:
        assert process.stdin
        # The program ends in the middle of a frame: only this shows that there is more input.
        await process.stdin.send(data[:1000])
        await ended(process)
        await process.stdin.send(data[1000:])
        for _ in range(64):
            await process.stdin.send(data)
        await process.stdin.send(frame(b""))
        assert await process.wait() == 6


async def test_input_that_starts_after_the_end_of_a_program_can_pause() -> None:
    data = frame(bytes(1 << 16))
    patient = FEEDER.replace(b"$NOTHING  = 0.5;", b"$NOTHING  = 1;").replace(b"$SILENCE  = 5;", b"$SILENCE  = 60;")
    assert patient != FEEDER
    async with feeding(False, "echo", "over", source=patient) as process:
        assert process.stdin
        await ended(process)
        await process.stdin.send(data[:1000])
        # Longer than the feeder waits if no input has arrived.
        with anyio.move_on_after(1.5):
            await process.wait()
        await process.stdin.send(data[1000:] + frame(b""))
        assert await process.wait() == 0


@pytest.mark.parametrize("taken", [0, 1000])
async def test_after_the_end_of_a_program_the_feeder_waits_for_the_end_of_the_input(taken: int) -> None:
    """Both if the program has read some input, and if none has arrived yet."""
    async with feeding(True, "sh", "-c", f"head -c {taken} >/dev/null; exit 6") as process:
        assert process.stdin
        if taken:
            await process.stdin.send(frame(bytes(taken)))
        # As long as the next input may take on a cluster under load; the program has ended by then.
        with anyio.move_on_after(1.5):
            await process.wait()
        await process.stdin.send(frame(bytes(1 << 16)) + frame(b""))
        assert await process.wait() == 6


async def test_a_feeder_that_never_receives_itself_ends() -> None:
    with anyio.fail_after(60):
        async with await anyio.open_process([*feeder(True), "echo", "on"], stderr=None) as process:
            assert process.stdin
            await process.stdin.send(frame(FEEDER)[:100])
            await process.stdin.aclose()
            assert await process.wait() == 255


def test_the_words_of_a_feeder_are_short_in_a_url() -> None:
    assert len(quote_plus(" ".join(feeder(True)))) < 500
