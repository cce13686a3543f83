"""Forwards connections from another address to the cluster's API: for pods, where the API listens only on loopback, and
to count bytes."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.lowlevel
from anyio.abc import SocketAttribute, SocketStream


@asynccontextmanager
async def forwarded(
    listen: str,
    host: str,
    port: int,
    sent: Callable[[int], None] = lambda _: None,
    received: Callable[[int], None] = lambda _: None,
    *,
    wait: Callable[[], Awaitable[object]] = anyio.lowlevel.checkpoint,
    local_port: int = 0,
) -> AsyncIterator[int]:
    """Forwards every connection to a port of `listen` to `host` and `port`; gives the local port.

    `sent` and `received` are called with the number of bytes of each part, and `wait` before it is passed on. Without `local_port` it is any free port. The
    connections end with the scope.
    """

    async def pass_on(incoming: SocketStream) -> None:
        # Either side may end at any time.
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with incoming, await anyio.connect_tcp(host, port) as outgoing, anyio.create_task_group() as tasks:
                tasks.start_soon(_copy, incoming, outgoing, sent, wait)
                tasks.start_soon(_copy, outgoing, incoming, received, wait)

    async with (
        await anyio.create_tcp_listener(local_host=listen, local_port=local_port) as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, pass_on)
        yield listener.extra(SocketAttribute.local_port)
        tasks.cancel_scope.cancel()


async def _copy(
    source: SocketStream, target: SocketStream, count: Callable[[int], None], wait: Callable[[], Awaitable[object]]
) -> None:
    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        async for data in source:
            count(len(data))
            await wait()
            await target.send(data)
        await target.send_eof()
