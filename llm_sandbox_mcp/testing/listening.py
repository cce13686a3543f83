"""Listeners inside a sandbox whose connections are accepted outside, on every backend."""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import ByteStream

from llm_sandbox_mcp.backends.base import Completed, Sandbox
from llm_sandbox_mcp.backends.layout import PATH
from llm_sandbox_mcp.backends.listening import Listener
from llm_sandbox_mcp.base.errors import ListeningFailed

pytestmark = pytest.mark.anyio

LIMIT = 30
PIECE, TIMES = bytes(range(256)) * 1024, 160  # 40 MiB, more than the kernel buffers for a connection
_NAMES = """
own=$(readlink /proc/self/ns/pid)
for process in /proc/[0-9]*; do
  case $(readlink "$process/ns/pid") in "$own" | "") cat "$process/comm" ;; esac
done 2>/dev/null
"""
"""Prints the names of processes; those of containers do not count, if a backend's sandboxes see the whole machine."""
_CONNECT = "import hashlib, socket, sys, threading\nto = lambda: socket.create_connection(('127.0.0.1', {port}), 20)\n"

Serve = Callable[[ByteStream], Awaitable[object]]


async def served(sandbox: Sandbox, code: str, serve: Serve) -> Completed:
    """Runs Python code inside the sandbox and serves each of its connections outside."""

    async def accept(listener: Listener) -> None:
        async with anyio.create_task_group() as connections:
            while True:
                connections.start_soon(one, await listener.accept())

    async def one(stream: ByteStream) -> None:
        async with stream:
            await serve(stream)

    with anyio.fail_after(LIMIT):
        async with sandbox.listen() as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(accept, listener)
            text = _CONNECT.format(port=listener.port) + code
            done = await sandbox.run(["/usr/bin/python3", "-c", text], {"PATH": PATH})
            tasks.cancel_scope.cancel()
    assert done.exit_code == 0, done.stderr.decode()
    return done


async def _echo(stream: ByteStream) -> None:
    async for data in stream:
        await stream.send(data)


async def test_data_comes_back_and_each_direction_ends_separately(sandbox: Sandbox) -> None:
    async def answer(stream: ByteStream) -> None:
        request = b"".join([part async for part in stream])
        await stream.send(request[::-1])

    code = "s = to(); s.sendall(b'olleh'); s.shutdown(socket.SHUT_WR); print(s.makefile('rb').read())"
    assert (await served(sandbox, code, answer)).stdout == b"b'hello'\n"


async def test_connections_at_once_do_not_get_in_each_others_way(sandbox: Sandbox) -> None:
    # Small stacks: without control groups, the memory limit counts their full size.
    code = """
threading.stack_size(1 << 18)
def one(number):
    connection, sent = to(), bytes([number]) * 300_000
    feed = threading.Thread(target=connection.sendall, args=(sent,)); feed.start()
    got = b''
    while len(got) < len(sent): got += connection.recv(1 << 16)
    feed.join(); connection.close(); good.append(got == sent)
good = []
threads = [threading.Thread(target=one, args=(number,)) for number in range(20)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
print(sum(good))
"""
    assert (await served(sandbox, code, _echo)).stdout == b"20\n"


async def test_many_connections_one_after_another_are_served(sandbox: Sandbox) -> None:
    code = "for n in range(200):\n s = to(); s.sendall(b'x'); assert s.recv(1) == b'x'; s.close()"
    await served(sandbox, code, _echo)


async def test_a_large_answer_arrives_whole(sandbox: Sandbox) -> None:
    async def answer(stream: ByteStream) -> None:
        for _ in range(TIMES):
            await stream.send(PIECE)

    code = "print(hashlib.sha256(to().makefile('rb').read()).hexdigest())"
    done = await served(sandbox, code, answer)
    assert done.stdout.decode().strip() == hashlib.sha256(PIECE * TIMES).hexdigest()


@asynccontextmanager
async def connected(sandbox: Sandbox, code: str) -> AsyncIterator[ByteStream]:
    """The outside end of the one connection that Python code inside makes."""
    with anyio.fail_after(LIMIT):
        async with sandbox.listen() as listener:
            text = _CONNECT.format(port=listener.port) + code
            async with (
                await sandbox.spawn(["/usr/bin/python3", "-c", text], {"PATH": PATH}),
                await listener.accept() as stream,
            ):
                yield stream


async def test_what_nobody_reads_yet_stays_with_its_sender(sandbox: Sandbox) -> None:
    async with connected(sandbox, "s = to(); sys.stdin.read()") as stream:
        with anyio.move_on_after(0.5) as waiting:
            for _ in range(TIMES):
                await stream.send(PIECE)
    assert waiting.cancelled_caught, "all data was buffered somewhere"


async def test_a_peer_that_hangs_up_ends_its_own_connection_only(sandbox: Sandbox) -> None:
    async def answer(stream: ByteStream) -> None:
        request = await stream.receive()
        with suppress(anyio.BrokenResourceError):
            for _ in range(TIMES if request == b"all" else 1):
                await stream.send(PIECE)

    code = "for _ in range(80):\n s = to(); s.sendall(b'all'); s.recv(1); s.close()\n"
    code += "s = to(); s.sendall(b'one'); print(len(s.makefile('rb').read()))"
    done = await served(sandbox, code, answer)
    assert int(done.stdout) == len(PIECE)


async def test_sending_to_a_peer_that_hung_up_fails(sandbox: Sandbox) -> None:
    async with connected(sandbox, "s = to(); s.close(); sys.stdin.read()") as stream:
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()
        with pytest.raises(anyio.BrokenResourceError):
            await stream.send(PIECE * TIMES)


async def test_a_port_in_use_is_an_error_with_the_next_step(sandbox: Sandbox) -> None:
    with anyio.fail_after(LIMIT):
        async with sandbox.listen() as listener:
            with pytest.raises(ListeningFailed, match=r"[Aa]ddress already in use; .*open a new session"):
                async with sandbox.listen(listener.port):
                    pass


async def _names(sandbox: Sandbox) -> list[bytes]:
    names = (await sandbox.run(["sh", "-c", _NAMES], {"PATH": PATH})).stdout.split()
    assert b"sh" in names  # that of this script
    return names


async def test_nobody_listens_after_the_scope(sandbox: Sandbox) -> None:
    with anyio.fail_after(LIMIT):
        async with sandbox.listen() as listener:
            port = listener.port
        text = _CONNECT.format(port=port) + "try: to()\nexcept ConnectionRefusedError: print('refused')"
        assert (await sandbox.run(["/usr/bin/python3", "-c", text], {"PATH": PATH})).stdout == b"refused\n"
        assert b"perl" not in await _names(sandbox)


@pytest.mark.parametrize("steps", [0, 1, 3, 10, 30, 100])
async def test_a_cancelled_listener_leaves_nothing_behind(sandbox: Sandbox, steps: int) -> None:
    async def listen() -> None:
        async with sandbox.listen() as listener:
            await listener.accept()

    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        assert b"perl" not in await _names(sandbox)
