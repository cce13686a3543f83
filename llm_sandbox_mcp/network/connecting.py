"""From a host to a connection, in two steps, so that what was resolved can be checked in between."""

import socket
from collections.abc import Sequence

import anyio
import anyio.to_thread

from ..destinations import IPAddress
from ..sockets import RawStream
from .http1 import Refused

SECONDS = 10.0
"""To resolve a name, and as many to connect to it."""


async def resolve(host: str | IPAddress, port: int, threads: anyio.CapacityLimiter) -> list[str]:
    """All addresses of a host; `Refused` where it has none."""
    if not isinstance(host, str):
        return [str(host)]

    def look_up() -> list[str]:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(entry[4][0]) for entry in found))

    try:
        with anyio.fail_after(SECONDS):
            return await anyio.to_thread.run_sync(look_up, limiter=threads, abandon_on_cancel=True)
    except TimeoutError:
        raise Refused(504, f"{host} was not resolved in {SECONDS:g} s; try again later") from None
    except OSError:
        raise Refused(502, f"{host} cannot be resolved; check the name") from None


async def connect(host: str | IPAddress, addresses: Sequence[str], port: int) -> RawStream:
    """A connection to the first of the addresses that answers; `Refused` where none does."""
    reason = "did not answer in time"
    with anyio.move_on_after(SECONDS):
        for address in addresses:
            try:
                return await RawStream.connect(address, port)
            except OSError as error:
                reason = f"cannot be reached: {error.strerror}"
    raise Refused(502, f"{host} {reason}; try again later")
