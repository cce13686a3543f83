"""Both protocols in which a cluster carries the streams of a process, over a real websocket to a fake cluster."""

import contextlib
import json
import os
import signal
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import anyio
import anyio.lowlevel
import pytest
from aiohttp import web
from anyio.abc import Process

from llm_sandbox_mcp.backends.kubernetes import channels
from llm_sandbox_mcp.backends.kubernetes.channels import PROTOCOLS, Channels, feeder

pytestmark = pytest.mark.anyio

Serve = Callable[[web.WebSocketResponse], Awaitable[None]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def connected(serve: Serve, protocol: str = PROTOCOLS[0], *, framed: bool = False) -> AsyncIterator[Channels]:
    async def handle(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=[protocol], max_msg_size=0)
        await socket.prepare(request)
        await serve(socket)
        await socket.close()
        return socket

    application = web.Application()
    application.router.add_get("/", handle)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        with anyio.fail_after(30):
            async with aiohttp.ClientSession() as session, anyio.create_task_group() as tasks:
                channels = Channels(
                    await session.ws_connect(f"http://{host}:{port}/", protocols=PROTOCOLS), framed=framed
                )
                tasks.start_soon(channels.pump)
                yield channels
                tasks.cancel_scope.cancel()
    finally:
        await runner.cleanup()


async def read(channels: Channels) -> tuple[bytes, bytes]:
    out = b"".join([part async for part in channels.stdout])
    return out, b"".join([part async for part in channels.stderr])


def exited(code: int) -> bytes:
    causes = [{"reason": "ExitCode", "message": str(code)}]
    status = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    return b"\x03" + json.dumps(status if code else {"status": "Success"}).encode()


async def echo(socket: web.WebSocketResponse) -> None:
    """Does what a cluster does for two messages to a `cat` that prints an error when it ends."""
    for _ in range(2):
        message = await socket.receive()
        assert message.data[:1] == b"\x00"
        await socket.send_bytes(b"\x01" + message.data[1:])
    await socket.send_bytes(b"\x02done")
    await socket.send_bytes(exited(7))


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_both_protocols_carry_streams_and_the_exit_code(protocol: str) -> None:
    async with connected(echo, protocol) as channels:
        await channels.stdin.send(b"one ")
        await channels.stdin.send(b"two")
        assert await read(channels) == (b"one two", b"done")
        assert await channels.exit_code() == 7


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_the_end_of_the_input_is_an_empty_frame(protocol: str) -> None:
    got = bytearray()

    async def take(socket: web.WebSocketResponse) -> None:
        async for message in socket:
            got.extend(message.data[1:])
            if got.endswith(struct.pack(">I", 0)):
                break
        await socket.send_bytes(exited(0))

    async with connected(take, protocol, framed=True) as channels:
        await channels.stdin.send(b"hello")
        await channels.stdin.aclose()
        assert await read(channels) == (b"", b"")
        assert await channels.exit_code() == 0
    assert bytes(got) == struct.pack(">I", 5) + b"hello" + struct.pack(">I", 0)


async def test_a_cluster_that_disconnects_leaves_no_exit_code() -> None:
    async def disconnect(socket: web.WebSocketResponse) -> None:
        await socket.send_bytes(b"\x01half")

    async with connected(disconnect) as channels:
        assert await read(channels) == (b"half", b"")
        assert await channels.exit_code() is None
        with pytest.raises(anyio.BrokenResourceError):
            await channels.stdin.send(bytes(1 << 24))


async def test_a_connection_that_stays_open_after_the_exit_code_blocks_nothing() -> None:
    received = anyio.Event()

    async def stay(socket: web.WebSocketResponse) -> None:
        await socket.send_bytes(b"\x01all")
        await socket.send_bytes(exited(3))
        await received.wait()

    async with connected(stay) as channels:
        assert await read(channels) == (b"all", b"")
        assert await channels.exit_code() == 3
        received.set()


async def test_an_exit_code_is_still_received_after_the_streams_were_closed() -> None:
    closed = anyio.Event()

    async def late(socket: web.WebSocketResponse) -> None:
        await closed.wait()
        await socket.send_bytes(b"\x01unread")
        await socket.send_bytes(exited(137))

    async with connected(late) as channels:
        channels.close()
        closed.set()
        assert await read(channels) == (b"", b"")
        assert await channels.exit_code() == 137


async def test_a_flood_is_read_in_portions_with_a_pause_after_each(monkeypatch: pytest.MonkeyPatch) -> None:
    message = b"\x01" + bytes(1000)

    async def flood(socket: web.WebSocketResponse) -> None:
        for _ in range(300):
            await socket.send_bytes(message)
        await socket.receive()

    # The first pause is longer than this test.
    monkeypatch.setattr(channels, "_RATE", 1.0)
    taken = 0
    async with connected(flood) as flooded:
        with anyio.move_on_after(0.5):
            while True:
                taken += len(await flooded.stdout.receive())
    # Short messages count as longer than they are.
    assert taken == (channels._PORTION // channels._LEAST + 1) * 1000


async def test_unread_output_is_not_buffered_without_limit() -> None:
    sent = 0

    async def flood(socket: web.WebSocketResponse) -> None:
        nonlocal sent
        for _ in range(640):
            await socket.send_bytes(b"\x01" + bytes(1 << 16))
            sent += 1

    async with connected(flood) as channels:
        with anyio.move_on_after(1):
            await channels.ended.wait()
        assert 0 < sent < 640
        total = 0
        async for part in channels.stdout:
            total += len(part)
        assert total == 640 << 16


async def fed(program: str, *frames: bytes, open_end: bool = True) -> tuple[int, bytes]:
    """The feeder's exit code and its program's output for some frames; unless `open_end`, the input is closed."""
    data = b"".join(struct.pack(">I", len(frame)) + frame for frame in frames)
    with anyio.fail_after(30):
        async with await anyio.open_process([*feeder(not frames[-1]), "sh", "-c", program], stderr=None) as process:
            assert process.stdin
            assert process.stdout
            with contextlib.suppress(anyio.BrokenResourceError):
                await process.stdin.send(data)
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
    command = [*feeder(False), "sh", "-c", "trap '' PIPE; yes | head -c 1000000; exit 9"]
    nobody, out = os.pipe()
    os.close(nobody)
    try:
        with anyio.fail_after(30):
            async with await anyio.open_process(command, stdout=out, stderr=None) as process:
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
    command = [sys.executable, "-c", deaf, *feeder(False), "sh", "-c", "sleep 1000 & echo $!; exit 8"]
    with anyio.fail_after(30):
        async with await anyio.open_process(command, stderr=None) as process:
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
    frame = struct.pack(">I", 1 << 16) + bytes(1 << 16)
    with anyio.fail_after(60):
        async with await anyio.open_process(
            [*feeder(False), "sh", "-c", "exec <&-; echo over; exit 6"], stderr=None
        ) as process:
            assert process.stdin
            # The program ends in the middle of a frame: only this shows that there is more input.
            await process.stdin.send(frame[:1000])
            await ended(process)
            await process.stdin.send(frame[1000:])
            for _ in range(64):
                await process.stdin.send(frame)
            await process.stdin.send(struct.pack(">I", 0))
            assert await process.wait() == 6


async def test_input_that_starts_after_the_end_of_a_program_can_pause() -> None:
    frame = struct.pack(">I", 1 << 16) + bytes(1 << 16)
    command = [*feeder(False), "echo", "over"]
    command[2] = command[2].replace("$NOTHING  = 0.5;", "$NOTHING  = 1;").replace("$SILENCE  = 5;", "$SILENCE  = 60;")
    assert command[2] != feeder(False)[2]
    with anyio.fail_after(60):
        async with await anyio.open_process(command, stderr=None) as process:
            assert process.stdin
            await ended(process)
            await process.stdin.send(frame[:1000])
            # Longer than the feeder waits if no input has arrived.
            with anyio.move_on_after(1.5):
                await process.wait()
            await process.stdin.send(frame[1000:] + struct.pack(">I", 0))
            assert await process.wait() == 0


@pytest.mark.parametrize("taken", [0, 1000])
async def test_after_the_end_of_a_program_the_feeder_waits_for_the_end_of_the_input(taken: int) -> None:
    """Both if the program has read some input, and if none has arrived yet."""
    with anyio.fail_after(60):
        async with await anyio.open_process(
            [*feeder(True), "sh", "-c", f"head -c {taken} >/dev/null; exit 6"], stderr=None
        ) as process:
            assert process.stdin
            if taken:
                await process.stdin.send(struct.pack(">I", taken) + bytes(taken))
            # As long as the next input may take on a cluster under load; the program has ended by then.
            with anyio.move_on_after(1.5):
                await process.wait()
            await process.stdin.send(struct.pack(">I", 1 << 16) + bytes(1 << 16) + struct.pack(">I", 0))
            assert await process.wait() == 6
