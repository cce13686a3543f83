"""Resolves a host, then connects: two steps, so that addresses can be checked in between."""

import socket
from collections.abc import Sequence
from functools import partial

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from ..aio.fds import RawStream
from ..base.destinations import IPAddress
from .http1 import Refused

SECONDS = 10.0
"""Seconds to resolve a name, and the same again to connect to it."""


class Resolver:
    """Resolves names for one sandbox, at most `most` at the same time, however long each takes.

    Its threads are those of all sandboxes; where others have taken all of them, one of its own.
    """

    def __init__(self, tasks: TaskGroup, threads: anyio.CapacityLimiter, most: int) -> None:
        self._tasks = tasks
        self._threads = threads
        self._own = anyio.CapacityLimiter(1)
        self._turns = anyio.Semaphore(most)

    async def resolve(self, host: str | IPAddress, port: int) -> list[str]:
        """All addresses of a host; raises `Refused` if it has none."""
        if not isinstance(host, str):
            return [str(host)]
        found: list[str] = []
        failed: list[Exception] = []
        done = anyio.Event()

        async def look_up() -> None:
            try:
                look = partial(_addresses, host, port)
                limiter = self._threads if self._threads.available_tokens >= 1 else self._own
                found[:] = await anyio.to_thread.run_sync(look, limiter=limiter, abandon_on_cancel=True)
            except OSError:
                pass
            except Exception as error:  # it belongs to the one who asked, and must not end what all tasks share
                failed.append(error)
            finally:
                done.set()
                self._turns.release()

        try:
            with anyio.fail_after(SECONDS):
                await self._turns.acquire()
                # Nothing can end a thread that waits for a silent name server: it keeps its slot until it returns.
                self._tasks.start_soon(look_up)
                await done.wait()
        except TimeoutError:
            raise Refused(504, f"{host} was not resolved within {SECONDS:g} s; try again later") from None
        if failed:
            raise failed[0]
        if not found:
            raise Refused(502, f"{host} cannot be resolved; check the name")
        return found


def _addresses(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def connect(host: str | IPAddress, addresses: Sequence[str], port: int) -> RawStream:
    """A connection to the first address that answers; raises `Refused` if none does."""
    reason = "did not answer in time"
    with anyio.move_on_after(SECONDS):
        for address in addresses:
            try:
                return await RawStream.connect(address, port)
            except OSError as error:
                reason = f"cannot be reached: {error.strerror}"
    raise Refused(502, f"{host} {reason}; try again later")
