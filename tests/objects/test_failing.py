"""Object stores that are wrong, silent or gone: an error in bounded time, which names the place and says what to do."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.base.errors import ProfileError, StoreFailed
from llm_sandbox_mcp.state import objects
from llm_sandbox_mcp.state.objects import ObjectStore

from ..unit.state.test_stores import MIB, get, put
from .servers import ObjectServer, rclone, variables

pytestmark = pytest.mark.anyio

LARGE = 20 * MIB
Work = Callable[[ObjectStore], Awaitable[object]]
WORKS: dict[str, Work] = {
    "list": lambda store: store.entries("me"),
    "write": lambda store: put(store, b"content"),
    "write in parts": lambda store: put(store, bytes(LARGE)),
    "read": get,
    "remove": lambda store: store.remove("me", "geo"),
    "rename": lambda store: store.rename("me", "geo", "new"),
}


@pytest.fixture(autouse=True)
async def _soon(monkeypatch: pytest.MonkeyPatch, anyio_backend: str) -> AsyncIterator[None]:
    monkeypatch.setattr(objects, "_PATIENCE", 2.0)
    monkeypatch.setattr(objects, "_RETRYING", timedelta(seconds=0.2))
    with anyio.fail_after(30):
        yield


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ObjectServer]:
    """One that the test may end."""
    with rclone(tmp_path) as server:
        yield server


class Client:
    """A store for a test, whose connections end with the scope of the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.opened = list[ObjectStore]()

    def __call__(self, url: str, place: str = "s3://sessions/some", **more: str) -> ObjectStore:
        for name, value in variables(url, **more).items():
            self._patch.setenv(name, value)
        self.opened.append(ObjectStore(place))
        return self.opened[-1]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    made = Client(monkeypatch)
    yield made
    for store in made.opened:
        del store._bucket


async def fails(work: Awaitable[object], expected: str, place: str = "s3://sessions/some") -> None:
    with pytest.raises(StoreFailed, match=expected) as raised:
        await work
    assert place in raised.value.cause
    assert raised.value.step
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("work", WORKS)
async def test_a_server_that_says_nothing_is_not_waited_for(client: Client, work: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = client(f"http://127.0.0.1:{silent.getsockname()[1]}")
        await fails(WORKS[work](store), "does not answer|cannot be used")


@pytest.mark.parametrize("work", WORKS)
async def test_a_server_that_is_not_there_is_named(client: Client, work: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    await fails(WORKS[work](client(f"http://127.0.0.1:{port}")), "cannot be used")


@pytest.mark.parametrize("work", WORKS)
async def test_wrong_credentials_are_named(client: Client, server: ObjectServer, work: str) -> None:
    store = client(server.url, secret="another")
    await fails(WORKS[work](store), "check the credentials in the server's environment")
    assert server.there("some") == []


async def test_why_credentials_are_refused_is_said_as_the_server_says_it(client: Client, server: ObjectServer) -> None:
    await fails(client(server.url, secret="another").entries("me"), "403 Forbidden, SignatureDoesNotMatch; check the")


@pytest.mark.parametrize("work", [work for work in WORKS if work != "write in parts"])
@pytest.mark.parametrize("endpoint", ["", "localhost:9000"])
async def test_an_endpoint_that_is_no_url_is_named(client: Client, endpoint: str, work: str) -> None:
    await fails(WORKS[work](client(endpoint)), "cannot be used: .*; check .* AWS_ENDPOINT_URL=https://HOST")


async def test_credentials_that_are_nowhere_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    store = ObjectStore("s3://sessions/some")
    await fails(store.entries("me"), "there are no credentials for .*; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")


def test_one_half_of_the_credentials_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    with pytest.raises(ProfileError, match=r"Missing AccessKeyId; .* with credentials in the server's environment"):
        ObjectStore("s3://sessions/some")


LATE = """
import asyncio.selector_events, threading, anyio
from llm_sandbox_mcp.state.objects import ObjectStore

wake = asyncio.selector_events.BaseSelectorEventLoop._write_to_self

def wake_late(self):
    wake(self)
    if threading.get_ident() != threading.main_thread().ident:
        for _ in range(2000):
            threading.Event().wait(0.0001)

asyncio.selector_events.BaseSelectorEventLoop._write_to_self = wake_late
anyio.run(ObjectStore("s3://sessions/some").entries, "me")
"""
"""A program that ends while a thread is still waking its event loop."""

HANGING = """
import anyio
from llm_sandbox_mcp.state.objects import ObjectStore

async def write():
    with anyio.move_on_after(0.2):
        async with ObjectStore("s3://sessions/some").create("me", "geo") as sink:
            for _ in range(20):
                await sink.write(bytes(SIZE))
            await sink.complete()

anyio.run(write)
"""
"""A program that ends while its request has no answer."""


async def run(code: str, variables: Mapping[str, str]) -> None:
    env = {**os.environ, **variables}
    done = await anyio.run_process([sys.executable, "-c", code], env=env, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr


async def test_a_program_that_ends_right_after_its_last_request_is_not_aborted(server: ObjectServer) -> None:
    await run(LATE, server.variables())


@pytest.mark.parametrize("size", [10, MIB])
async def test_a_program_ends_whose_request_has_no_answer(size: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, anyio.fail_after(10):
        await run(HANGING.replace("SIZE", str(size)), variables(f"http://127.0.0.1:{silent.getsockname()[1]}"))


@pytest.mark.parametrize("on", ["on_moto", "on_rclone"])
@pytest.mark.parametrize("work", [work for work in WORKS if work != "remove"])  # which asks by HEAD: no answer says why
async def test_a_bucket_that_is_not_there_is_named(
    client: Client, request: pytest.FixtureRequest, on: str, work: str
) -> None:
    running: ObjectServer = request.getfixturevalue(on)
    store = client(running.url, "s3://none/some")
    await fails(WORKS[work](store), "does not exist; make the bucket", "s3://none/some")


@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_server_that_goes_while_an_object_is_written(
    client: Client, server: ObjectServer, way: signal.Signals
) -> None:
    store = client(server.url)

    async def write() -> None:
        async with store.create("me", "geo") as sink:
            for number in range(LARGE // MIB):
                if number == 9:
                    server.process.send_signal(way)
                await sink.write(bytes(MIB))
            await sink.complete()

    await fails(write(), "does not answer|cannot be used")


@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_server_that_goes_while_an_object_is_read(
    client: Client, server: ObjectServer, way: signal.Signals
) -> None:
    store = client(server.url)
    await put(store, bytes(LARGE))
    async with store.open("me", "geo") as source:
        assert source is not None
        server.process.send_signal(way)
        await fails(source.read(LARGE - MIB, MIB), "does not answer|cannot be used")


async def test_an_object_whose_writer_failed_is_written_when_the_server_answers_again(
    client: Client, server: ObjectServer
) -> None:
    store = client(server.url)
    await put(store, b"old")
    server.process.send_signal(signal.SIGSTOP)
    await fails(put(store, b"new"), "does not answer|cannot be used")
    server.process.send_signal(signal.SIGCONT)
    await put(store, b"newer")
    assert await get(store) == b"newer"
