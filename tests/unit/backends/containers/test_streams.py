"""The raw stream of a container's process, over a socket pair."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import anyio
import pytest

from llm_sandbox_mcp.backends.containers.container import Output
from llm_sandbox_mcp.backends.containers.streams import _AHEAD, Attached, Connection, Refused, upgrade
from llm_sandbox_mcp.base.errors import EngineUnavailable

pytestmark = pytest.mark.anyio


async def test_reading_an_endless_stream_lets_other_tasks_run() -> None:
    here, there = socket.socketpair()
    turns = 0

    async def other() -> None:
        nonlocal turns
        turns += 1

    with there:
        connection = Connection(here)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(other)
                for _ in range(10):
                    there.send(b"x")
                    assert await connection.receive(bytearray(8)) == 1
                assert turns == 1
        finally:
            connection.close()


def frame(stream: int, data: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


@contextmanager
def attached() -> Iterator[tuple[Attached, socket.socket]]:
    """A process whose frames come from the other end."""
    here, there = socket.socketpair()
    streams = Attached(Connection(here))
    with there:
        try:
            yield streams, there
        finally:
            streams.close()


FRAMES = b"".join((frame(1, b"out"), frame(2, b"error"), frame(1, b""), frame(1, b" and more"), frame(2, b"s")))


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 11, 12, len(FRAMES)])
async def test_frames_go_to_their_outputs_however_they_are_cut(size: int) -> None:
    with attached() as (streams, there):
        for at in range(0, len(FRAMES), size):
            there.sendall(FRAMES[at : at + size])
            assert streams.look()
        there.close()
        assert not streams.look()
        assert not streams.look()
        assert streams.ended.is_set()
        assert await streams.stdout.receive(2) == b"ou"
        assert await streams.stdout.receive() == b"t and more"
        assert await streams.stderr.receive() == b"errors"
        for output in (streams.stdout, streams.stderr):
            with pytest.raises(anyio.EndOfStream):
                await output.receive()


async def test_a_reader_of_either_output_gets_what_arrives_while_both_wait() -> None:
    got = []

    async def read(output: Output) -> None:
        got.append(await output.receive())

    with anyio.fail_after(10), attached() as (streams, there):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read, streams.stdout)
            tasks.start_soon(read, streams.stderr)
            await anyio.wait_all_tasks_blocked()
            # One of them reads for both, and nobody else does meanwhile.
            assert streams.look()
            there.sendall(frame(2, b"error"))
            there.sendall(frame(1, b"out"))
    assert sorted(got) == [b"error", b"out"]


async def test_only_so_much_of_one_output_is_read_ahead_while_the_other_is_read() -> None:
    with attached() as (streams, there):
        there.setblocking(False)
        for _ in range(200):
            with suppress(BlockingIOError):
                there.send(frame(1, b"x" * (1 << 16)))
            assert streams.look()
        assert _AHEAD < len(streams.stdout.buffer) <= _AHEAD + (1 << 18)
        assert streams.forget()
        assert not streams.forget()


async def test_what_is_sent_arrives_with_its_end_and_nothing_can_follow() -> None:
    with anyio.fail_after(10), attached() as (streams, there):
        await streams.stdin.send(b"x" * 1000)
        await streams.stdin.aclose()
        await streams.stdin.aclose()
        assert there.recv(2000) == b"x" * 1000
        assert there.recv(1) == b""
        with pytest.raises(anyio.ClosedResourceError):
            await streams.stdin.send(b"more")
        assert await streams.exit_code() is None


@pytest.mark.parametrize(
    ("status", "content", "said", "gone"),
    [
        (404, b'{"message": "No such container"}', "No such container", True),
        (409, b'{"message": "is not running"}', "is not running", True),
        (500, b" plain text\n", "plain text", False),
        (500, b'{"cause": 1}', '{"cause": 1}', False),
        (403, b"", "status 403", False),
    ],
)
def test_an_engine_that_opens_no_stream_says_why(status: int, content: bytes, said: str, gone: bool) -> None:
    refused = Refused(status, content)
    assert (str(refused), refused.gone) == (said, gone)


def upgraded(answer: bytes) -> bytes:
    """What the stream begins with, after an engine's answer."""
    here, there = socket.socketpair()
    with there:
        there.sendall(answer)
        there.shutdown(socket.SHUT_WR)
        connection = upgrade(here, "/attach", {"a": 1})
        try:
            asked = there.recv(1 << 16)
            assert asked.startswith(b"POST /attach HTTP/1.1\r\n")
            assert asked.endswith(b'Content-Length: 8\r\n\r\n{"a": 1}')
            first = bytearray(100)
            return bytes(first[: connection.receive_nowait(first)])
        finally:
            connection.close()


@pytest.mark.parametrize("status", [b"101 UPGRADED", b"200 OK"])
async def test_what_follows_the_answer_of_an_engine_is_the_stream(status: bytes) -> None:
    assert upgraded(b"HTTP/1.1 %b\r\nUpgrade: tcp\r\n\r\nfirst" % status) == b"first"


async def test_an_answer_of_an_engine_without_a_stream_is_an_error() -> None:
    with pytest.raises(Refused, match="No such container"):
        upgraded(b'HTTP/1.1 404 Not Found\r\n\r\n{"message": "No such container"}')
    for cut in (b"", b"HTTP/1.1 101 UPGR", b"HTTP/1.1 101 UPGRADED\r\n" + b"x: y\r\n" * 20_000):
        with pytest.raises(EngineUnavailable, match="the engine closed the connection; check whether it is running"):
            upgraded(cut)
