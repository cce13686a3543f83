"""A way to the cluster's interface by another address: for pods, where it listens on loopback only, and for who counts."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import SocketAttribute, SocketStream


@asynccontextmanager
async def forwarded(
    listen: str,
    host: str,
    port: int,
    sent: Callable[[int], None] = lambda _: None,
    received: Callable[[int], None] = lambda _: None,
    *,
    local_port: int = 0,
) -> AsyncIterator[int]:
    """A port of the address from which every connection is passed on to another; told of the bytes of each part.

    With the scope end the connections too. The port is any, where none is named.
    """

    async def passed_on(incoming: SocketStream) -> None:
        # Either side may end at any time.
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with incoming, await anyio.connect_tcp(host, port) as outgoing, anyio.create_task_group() as tasks:
                tasks.start_soon(_copy, incoming, outgoing, sent)
                tasks.start_soon(_copy, outgoing, incoming, received)

    async with (
        await anyio.create_tcp_listener(local_host=listen, local_port=local_port) as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, passed_on)
        yield listener.extra(SocketAttribute.local_port)
        tasks.cancel_scope.cancel()


async def _copy(source: SocketStream, target: SocketStream, told: Callable[[int], None]) -> None:
    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        async for data in source:
            told(len(data))
            await target.send(data)
        await target.send_eof()
