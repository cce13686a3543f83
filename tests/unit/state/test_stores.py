"""What every kind of store promises: whole or not there, each owner's own, read from anywhere, and no mixture ever.

`tests/objects` runs all of this on servers, too.
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.base.errors import StoreFailed
from llm_sandbox_mcp.state.folder import FolderStore
from llm_sandbox_mcp.state.store import Entry, Source, Store

pytestmark = pytest.mark.anyio

MIB = 1 << 20
SIZES = (0, 1, 65_535, 65_536, 65_537, 5 * MIB - 1, 5 * MIB, 5 * MIB + 1, 8 * MIB, 20 * MIB)
"""Bytes, at and around those at which stores begin another part."""


@dataclass(frozen=True)
class Place:
    """A place for objects, with nothing in it at first."""

    open: Callable[[], Store]
    """Another store at the place, as that of another server."""
    there: Callable[[], Awaitable[Sequence[str]]]
    """All that is there, parts of incomplete objects included."""


def in_folder(folder: Path) -> Place:
    async def there() -> Sequence[str]:
        return [path.name for path in folder.rglob("*") if path.is_file()]

    return Place(lambda: FolderStore(folder), there)


@pytest.fixture(params=["folder"])
def place(tmp_path: Path) -> Place:
    return in_folder(tmp_path / "saved")


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()


async def put(store: Store, content: bytes, owner: str = "me", name: str = "geo", *, piece: int = MIB) -> None:
    async with store.create(owner, name) as sink:
        for start in range(0, len(content), piece):
            await sink.write(content[start : start + piece])
        await sink.complete()


async def fail(store: Store, content: bytes) -> None:
    async with store.create("me", "geo") as sink:
        await sink.write(content)
        raise ZeroDivisionError


async def get(store: Store, owner: str = "me", name: str = "geo") -> bytes | None:
    async with store.open(owner, name) as source:
        return await source.read(0, source.size) if source is not None else None


async def names(store: Store, owner: str = "me") -> list[str]:
    return sorted(entry.name for entry in await store.entries(owner))


async def only(store: Store) -> Entry:
    (entry,) = await store.entries("me")
    return entry


async def test_an_object_is_its_owners_alone(store: Store) -> None:
    assert await store.entries("me") == []
    assert await get(store) is None
    await put(store, b"content")
    await put(store, b"other", owner="me2", name="other")
    assert await get(store) == b"content"
    assert await names(store) == ["geo"]
    for owner in ("you", "m", "me2"):
        assert await get(store, owner=owner) is None
        assert not await store.remove(owner, "geo")
        await store.rename(owner, "geo", "new")
    assert (await names(store, "you"), await names(store, "m"), await names(store, "me2")) == ([], [], ["other"])
    assert await get(store) == b"content"


async def test_an_object_is_listed_as_it_is_opened(store: Store) -> None:
    await put(store, b"content")
    entry = await only(store)
    async with store.open("me", "geo") as source:
        assert source is not None
        assert (source.size, source.tag) == (7, entry.tag)
    assert entry.size >= 7
    assert entry.tag


async def test_what_another_server_wrote_is_there(place: Place) -> None:
    await put(place.open(), b"content")
    other = place.open()
    assert await names(other) == ["geo"]
    assert await get(other) == b"content"


async def test_names_are_kept_as_they_are(store: Store) -> None:
    given = [
        "a b",
        "a  b",
        "a.b",
        "a-b",
        "a_b",
        "a.state",
        "a.part",
        "a.state.state",
        "a",
        "A",
        "0" * 100,
        "a..b",
        "a%20b",
    ]
    for name in given:
        await put(store, name.encode(), name=name)
    assert await names(store) == sorted(given)
    for name in given:
        assert await get(store, name=name) == name.encode()
    for name in given[::2]:
        assert await store.remove("me", name)
    assert await names(store) == sorted(given[1::2])


@pytest.mark.parametrize("size", SIZES)
async def test_objects_of_any_size_are_read_from_anywhere(store: Store, size: int) -> None:
    content = os.urandom(size)
    await put(store, content, piece=700_001)
    async with store.open("me", "geo") as source:
        assert source is not None
        assert source.size == size
        for start in {0, 1, 3, size // 2, max(0, size - 5), size}:
            for length in (0, 1, 9, 65_537, size):
                assert await source.read(start, length) == content[start : start + length], (start, length)
    assert (await only(store)).size >= size


async def test_an_object_is_read_in_many_places_at_once(store: Store) -> None:
    content = os.urandom(6 * MIB)
    await put(store, content)
    wrong: list[int] = []

    async def read(source: Source, start: int) -> None:
        if await source.read(start, 100_000) != content[start : start + 100_000]:
            wrong.append(start)

    async with store.open("me", "geo") as source, anyio.create_task_group() as tasks:
        assert source is not None
        for start in (5 * MIB, 0, 3 * MIB, MIB, 4 * MIB, 5 * MIB + 1, 2 * MIB, 300_000):
            tasks.start_soon(read, source, start)
    assert wrong == []


async def test_nothing_exists_until_it_is_complete(store: Store, place: Place) -> None:
    async with store.create("me", "geo") as sink:
        for _ in range(12):
            await sink.write(bytes(MIB))
        for other in (store, place.open()):
            assert await other.entries("me") == []
            assert await get(other) is None
        await sink.complete()
        assert await names(store) == ["geo"]
    assert len(await place.there()) == 1


@pytest.mark.parametrize("size", [0, 3, 12 * MIB])
async def test_what_was_not_completed_leaves_the_old_one_and_nothing_else(
    store: Store, place: Place, size: int
) -> None:
    await put(store, b"old")
    before = await only(store)
    async with store.create("me", "geo") as sink:
        await sink.write(bytes(size))
    with pytest.raises(ZeroDivisionError):
        await fail(store, bytes(size))
    assert await only(store) == before
    assert await get(store) == b"old"
    assert len(await place.there()) == 1


@pytest.mark.parametrize("size", [0, 3, 12 * MIB])
async def test_a_writer_that_is_cancelled_leaves_nothing(store: Store, place: Place, size: int) -> None:
    written = anyio.Event()

    async def write() -> None:
        async with store.create("me", "geo") as sink:
            await sink.write(bytes(size))
            written.set()
            await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        await written.wait()
        tasks.cancel_scope.cancel()
    assert await store.entries("me") == []
    assert await get(store) is None
    assert await place.there() == []


async def test_a_writer_that_is_cancelled_at_any_moment_leaves_nothing_or_all(store: Store, place: Place) -> None:
    content = bytes(6 * MIB)
    for turns in range(0, 60, 6):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(put, store, content)
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(10):  # a disk or a server may still be busy with what nobody waits for any more
            while len(await place.there()) != len(await store.entries("me")):
                await anyio.lowlevel.checkpoint()
        assert await get(store) in (None, content)
        await store.remove("me", "geo")


@pytest.mark.parametrize("size", [3, 12 * MIB])
async def test_a_reader_has_the_old_bytes_or_an_error_when_another_takes_their_place(
    store: Store, place: Place, size: int
) -> None:
    old, new, said = b"o" * size, b"n" * size, ""
    await put(store, old)
    async with store.open("me", "geo") as source:
        assert source is not None
        first = await source.read(0, size // 2)
        await put(place.open(), new)
        try:
            assert first + await source.read(size // 2, size) == old
        except StoreFailed as error:
            said = str(error)
    assert not said or "was replaced or removed while it was read" in said
    assert await get(store) == new


async def test_readers_never_see_a_mixture_while_writers_go_on(place: Place) -> None:
    contents = [bytes([number]) * 300_000 for number in range(12)]
    await put(place.open(), contents[0])
    written, seen = anyio.Event(), 0

    async def write() -> None:
        store = place.open()
        for content in contents[1:]:
            await put(store, content)
        written.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        store = place.open()
        while not written.is_set():
            try:
                async with store.open("me", "geo") as source:
                    assert source is not None
                    parts = [await source.read(start, 100_000) for start in range(0, source.size, 100_000)]
            except StoreFailed:
                continue
            assert b"".join(parts) in contents
            seen += 1
    assert seen
    assert await get(store) == contents[-1]


async def test_of_two_writers_at_once_the_later_wins_as_a_whole(place: Place) -> None:
    one, other = place.open(), place.open()
    async with one.create("me", "geo") as first, other.create("me", "geo") as second:
        for _ in range(7):
            await first.write(b"1" * MIB)
            await second.write(b"2" * MIB)
        await second.complete()
        assert await get(one) == b"2" * 7 * MIB
        await first.complete()
    for store in (one, other):
        assert await get(store) == b"1" * 7 * MIB
    assert len(await place.there()) == 1


async def test_of_many_writers_at_once_one_is_there_whole(place: Place) -> None:
    contents = [bytes([number]) * 100_000 for number in range(8)]
    async with anyio.create_task_group() as tasks:
        for content in contents:
            tasks.start_soon(put, place.open(), content)
    assert await get(place.open()) in contents
    assert len(await place.there()) == 1


async def test_one_that_took_the_place_of_an_old_one_is_not_removed_for_it(store: Store) -> None:
    await put(store, b"old")
    old = await only(store)
    await put(store, b"new")
    assert not await store.remove("me", "geo", old.tag)
    assert await get(store) == b"new"
    assert await store.remove("me", "geo", (await only(store)).tag)
    assert await store.entries("me") == []
    assert not await store.remove("me", "geo", old.tag)


async def test_what_is_removed_is_gone_and_not_removed_twice(store: Store, place: Place) -> None:
    assert not await store.remove("me", "geo")
    await put(store, b"content")
    assert await store.remove("me", "geo")
    assert not await store.remove("me", "geo")
    assert await get(store) is None
    assert await store.entries("me") == []
    assert await place.there() == []


@pytest.mark.parametrize("size", [7, 12 * MIB])
async def test_an_object_gets_another_name_in_the_place_of_what_has_that(store: Store, place: Place, size: int) -> None:
    content = os.urandom(size)
    await put(store, content, name="old name")
    await store.rename("me", "old name", "new")
    assert await names(store) == ["new"]
    await put(store, b"more", name="geo")
    await store.rename("me", "new", "geo")
    assert await names(store) == ["geo"]
    assert await get(store) == content
    assert len(await place.there()) == 1


async def test_to_rename_what_is_not_there_changes_nothing(store: Store) -> None:
    await store.rename("me", "none", "geo")
    assert await store.entries("me") == []
    await put(store, b"content")
    before = await only(store)
    await store.rename("me", "none", "geo")
    assert await only(store) == before


async def test_an_object_that_gets_its_own_name_stays(store: Store) -> None:
    await put(store, b"content")
    await store.rename("me", "geo", "geo")
    assert await get(store) == b"content"


async def test_one_of_many_is_found_among_them(store: Store) -> None:
    given = [f"n{number}" for number in range(40)]
    async with anyio.create_task_group() as tasks:
        for name in given:
            tasks.start_soon(put, store, name.encode() * 3, "me", name)
    assert await names(store) == sorted(given)
    assert await get(store, name="n17") == b"n17n17n17"
