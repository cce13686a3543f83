"""Servers that the tests of this folder share, and stores on them."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import anyio.to_thread
import pytest
from obstore.store import MemoryStore

from llm_sandbox_mcp.state.encrypted import EncryptedStore
from llm_sandbox_mcp.state.objects import ObjectStore

from ..unit.state.test_stores import Place
from .servers import ObjectServer, moto, rclone


@pytest.fixture(scope="package", autouse=True)
def threads_of_obstore() -> None:
    """Starts them: they stay until this process ends."""
    MemoryStore().put("name", b"content")


@pytest.fixture(scope="package")
def on_moto() -> Iterator[ObjectServer]:
    with moto() as server:
        yield server


@pytest.fixture(scope="package")
def on_rclone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with rclone(tmp_path_factory.mktemp("rclone")) as server:
        yield server


@contextmanager
def on_server(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A prefix of its own in the server's bucket; at the end, the connections of its stores end."""
    prefix, opened = f"some/{secrets.token_hex(4)}", list[ObjectStore]()
    for name, value in server.variables().items():
        monkeypatch.setenv(name, value)

    def open_store() -> ObjectStore:
        opened.append(ObjectStore(server.place(prefix)))
        return opened[-1]

    async def there() -> Sequence[str]:
        return await anyio.to_thread.run_sync(server.there, prefix)

    yield Place(open_store, there)
    for store in opened:  # pytest has them for longer, and connections end with the last who has them
        del store._bucket


def encrypted(place: Place) -> Place:
    """A place whose objects are encrypted."""
    key = bytes(range(32))
    return Place(lambda: EncryptedStore(place.open(), [key]), place.there)
