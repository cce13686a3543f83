"""Both protocols in which a cluster carries the streams of a process, spoken by the other side of a real websocket."""

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
    """What a cluster does for two messages to a `cat` that complains at its end."""
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
async def test_the_end_of_the_input_is_a_frame_of_no_bytes(protocol: str) -> None:
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


async def test_a_cluster_that_goes_leaves_no_exit_code() -> None:
    async def vanish(socket: web.WebSocketResponse) -> None:
        await socket.send_bytes(b"\x01half")

    async with connected(vanish) as channels:
        assert await read(channels) == (b"half", b"")
        assert await channels.exit_code() is None
        with pytest.raises(anyio.BrokenResourceError):
            await channels.stdin.send(bytes(1 << 24))


async def test_a_connection_that_is_not_closed_after_the_exit_code_keeps_nobody_waiting() -> None:
    heard = anyio.Event()

    async def stay(socket: web.WebSocketResponse) -> None:
        await socket.send_bytes(b"\x01all")
        await socket.send_bytes(exited(3))
        await heard.wait()

    async with connected(stay) as channels:
        assert await read(channels) == (b"all", b"")
        assert await channels.exit_code() == 3
        heard.set()


async def test_an_exit_code_is_still_heard_after_the_streams_were_closed() -> None:
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


async def test_a_flood_is_taken_in_portions_with_a_pause_after_each(monkeypatch: pytest.MonkeyPatch) -> None:
    message = b"\x01" + bytes(1000)

    async def flood(socket: web.WebSocketResponse) -> None:
        for _ in range(300):
            await socket.send_bytes(message)
        await socket.receive()

    # The first pause lasts for longer than this test does.
    monkeypatch.setattr(channels, "_RATE", 1.0)
    taken = 0
    async with connected(flood) as flooded:
        with anyio.move_on_after(0.5):
            while True:
                taken += len(await flooded.stdout.receive())
    # Short messages count for more than they hold.
    assert taken == (channels._PORTION // channels._LEAST + 1) * 1000


async def test_what_nobody_reads_is_not_kept_without_bounds() -> None:
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
    """How the feeder ends and what its program prints, given frames and, without an open end, the end of them."""
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


async def test_a_feeder_ends_with_its_program_though_more_is_sent() -> None:
    assert await fed("exit 5", *[bytes(1 << 16)] * 64) == (5, b"")


async def test_a_feeder_tells_the_signal_that_ended_its_program() -> None:
    assert await fed("kill -9 $$", b"") == (137, b"")


async def test_a_program_is_ended_with_its_frames() -> None:
    assert await fed("exec sleep 1000", b"no end of input comes", open_end=False) == (137, b"")


async def test_a_feeder_ends_with_its_program_though_another_holds_its_streams() -> None:
    code, printed = await fed("sleep 1000 & echo $!; exit 7", b"")
    assert code == 7
    os.kill(int(printed), signal.SIGKILL)


async def test_a_feeder_passes_on_all_that_its_program_printed() -> None:
    assert await fed("head -c 3000000 /dev/zero | tr '\\0' x", b"") == (0, b"x" * 3_000_000)


async def test_a_feeder_does_not_wait_where_nobody_takes_what_its_program_prints() -> None:
    command = [*feeder(False), "sh", "-c", "trap '' PIPE; yes | head -c 1000000; exit 9"]
    nobody, out = os.pipe()
    os.close(nobody)
    try:
        with anyio.fail_after(30):
            async with await anyio.open_process(command, stdout=out, stderr=None) as process:
                assert await process.wait() == 9
    finally:
        os.close(out)


async def test_a_program_that_is_stopped_and_goes_on_is_not_taken_for_ended() -> None:
    assert await fed("(sleep 0.1; kill -CONT $$) & kill -STOP $$; echo on; exit 4", b"") == (4, b"on\n")


async def test_signals_end_the_program_and_not_its_feeder() -> None:
    signals = "for signal in HUP INT QUIT TERM USR1 PIPE ALRM PROF; do kill -$signal $PPID; done; "
    assert await fed(f"{signals} echo on; exit 3", b"") == (3, b"on\n")
    assert await fed("kill -HUP $$", b"") == (129, b"")


async def test_an_end_that_no_signal_tells_of_is_found_out() -> None:
    deaf = "import os, signal, sys; signal.pthread_sigmask(0, {signal.SIGCHLD}); os.execvp(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", deaf, *feeder(False), "sh", "-c", "sleep 1000 & echo $!; exit 8"]
    with anyio.fail_after(30):
        async with await anyio.open_process(command, stderr=None) as process:
            assert process.stdout
            printed = b"".join([part async for part in process.stdout])
            assert await process.wait() == 8
    os.kill(int(printed), signal.SIGKILL)


async def ended(process: Process) -> None:
    """Waits until a feeder has seen the end of its program, which prints "over" before; earlier there is no child."""
    assert process.stdout
    assert await process.stdout.receive() == b"over\n"
    children = anyio.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while await children.read_text():
        await anyio.lowlevel.checkpoint()


async def test_what_comes_after_the_end_of_a_program_is_taken_to_its_end() -> None:
    frame = struct.pack(">I", 1 << 16) + bytes(1 << 16)
    with anyio.fail_after(60):
        async with await anyio.open_process(
            [*feeder(False), "sh", "-c", "exec <&-; echo over; exit 6"], stderr=None
        ) as process:
            assert process.stdin
            # It ends in the middle of a frame: of more to come nothing else tells.
            await process.stdin.send(frame[:1000])
            await ended(process)
            await process.stdin.send(frame[1000:])
            for _ in range(64):
                await process.stdin.send(frame)
            await process.stdin.send(struct.pack(">I", 0))
            assert await process.wait() == 6


async def test_input_that_begins_to_come_after_the_end_of_a_program_may_pause() -> None:
    frame = struct.pack(">I", 1 << 16) + bytes(1 << 16)
    command = [*feeder(False), "echo", "over"]
    command[2] = command[2].replace("$NOTHING  = 0.5;", "$NOTHING  = 1;").replace("$SILENCE  = 5;", "$SILENCE  = 60;")
    assert command[2] != feeder(False)[2]
    with anyio.fail_after(60):
        async with await anyio.open_process(command, stderr=None) as process:
            assert process.stdin
            await ended(process)
            await process.stdin.send(frame[:1000])
            # Longer than where nothing had come.
            with anyio.move_on_after(1.5):
                await process.wait()
            await process.stdin.send(frame[1000:] + struct.pack(">I", 0))
            assert await process.wait() == 0


@pytest.mark.parametrize("taken", [0, 1000])
async def test_the_end_of_its_input_is_waited_for_after_the_end_of_a_program(taken: int) -> None:
    """Whether it had some of it or nothing yet."""
    with anyio.fail_after(60):
        async with await anyio.open_process(
            [*feeder(True), "sh", "-c", f"head -c {taken} >/dev/null; exit 6"], stderr=None
        ) as process:
            assert process.stdin
            if taken:
                await process.stdin.send(struct.pack(">I", taken) + bytes(taken))
            # As long as the next may take to come through a cluster under load; the program has ended by then.
            with anyio.move_on_after(1.5):
                await process.wait()
            await process.stdin.send(struct.pack(">I", 1 << 16) + bytes(1 << 16) + struct.pack(">I", 0))
            assert await process.wait() == 6
