"""Sessions that are put aside: under which name, whose they are, how many stay, and that none meets one that is saved."""

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.base.errors import BadState, StoreFailed, UnknownState
from llm_sandbox_mcp.base.principal import TOKEN, USER, Principal
from llm_sandbox_mcp.state import encoding
from llm_sandbox_mcp.state.bounds import Bounds
from llm_sandbox_mcp.state.encoding import Section
from llm_sandbox_mcp.state.folder import FolderStore
from llm_sandbox_mcp.state.kept import KeptSessions
from llm_sandbox_mcp.state.manifest import FORMAT, Manifest
from llm_sandbox_mcp.state.saved import SavedSessions
from llm_sandbox_mcp.state.store import Source
from tests.disks import small_disk

pytestmark = pytest.mark.anyio

A, B, C, D = (letter * 40 for letter in "abcd")
"""Ids of sessions."""
NOW = datetime.now(UTC) - timedelta(hours=1)
MANY = Bounds(1000, 1 << 40, 1e9)


WRITING = 2
"""Objects that are looked for before a state is written: its older descriptions."""


class Counting(FolderStore):
    """A folder that counts how often it is opened."""

    opened = 0

    @asynccontextmanager
    async def open(self, owner: str, name: str) -> AsyncIterator[Source | None]:
        self.opened += 1
        async with super().open(owner, name) as source:
            yield source


def kept_in(folder: Path, bounds: Bounds = MANY) -> KeptSessions:
    return KeptSessions(FolderStore(folder), bounds)


def nobody(_session_id: str) -> bool:
    return False


def described(name: str, after: float, layers: Sequence[Section]) -> Manifest:
    """A state of so many seconds after the first one."""
    return Manifest(
        format=FORMAT,
        name=name,
        created=NOW + timedelta(seconds=after),
        version="1.0",
        language="python",
        runs=3,
        variables={},
        files=1,
        layers=tuple(layers),
    )


async def put(
    kept: KeptSessions,
    session_id: str,
    content: bytes = b"",
    *,
    owner: Principal = USER,
    after: float = 0,
    needed: Callable[[str], bool] = nobody,
    earlier: Sequence[Section] = (),
    live: bool = False,
) -> Sequence[Section]:
    """Puts a session aside, so many seconds after the first one, after earlier layers; returns all of its layers."""
    async with kept.writing(owner, session_id, needed, live=live) as writer:
        writer.begin("files")
        await writer.add(content)
        layers = [*earlier, await writer.end()]
        await writer.complete(described(session_id, after, layers))
    return layers


async def get(kept: KeptSessions, session_id: str, owner: Principal = USER) -> tuple[bytes, bool]:
    """The content of a session that was put aside, and whether it ended with that."""
    async with kept.reading(owner, session_id) as (reader, ended):
        return b"".join([part for layer in reader.manifest.layers async for part in reader.section(layer)]), ended


def names(folder: Path) -> set[str]:
    """The names of all objects."""
    return {path.name.removesuffix(".state") for path in folder.rglob("*.state")}


def data(folder: Path, session_id: str = "") -> set[str]:
    """The names of the objects that have data, of one session or of all."""
    return {name for name in names(folder) if name.startswith(f"{session_id or name[:40]}.") and name[40:] != ".live"}


def description(folder: Path, name: str) -> Path:
    """The file of a description."""
    (path,) = folder.rglob(f"{name}.state")
    return path


def read_description(path: Path) -> Manifest:
    """What a description says."""
    state = path.read_bytes()
    place = encoding.place_of_manifest(state[-encoding.TAIL_SIZE :])
    return Manifest.model_validate_json(encoding.manifest_in(state[place : -encoding.TAIL_SIZE], place))


def objects(folder: Path) -> list[str]:
    """The names of all descriptions, with the first digit of each id; no data is missing, and none is left over."""
    described, named = names(folder) - data(folder), set[str]()
    for name in described:
        try:
            named |= read_description(description(folder, name)).objects
        except encoding.Damaged:
            named |= data(folder, name[:40])
    assert data(folder) == named
    return sorted(name[0] + name[40:] for name in described)


def files(folder: Path) -> dict[Path, bytes]:
    """All objects with what is in them."""
    return {path: path.read_bytes() for path in folder.rglob("*.state")}


def put_back(before: Mapping[Path, bytes]) -> None:
    """Puts objects back that are gone or have changed, as if a server had been killed before it removed them."""
    for path, content in before.items():
        path.write_bytes(content)


async def test_a_session_ends_with_its_state_until_it_goes_on_and_ends_again(tmp_path: Path) -> None:
    kept = kept_in(tmp_path)
    with pytest.raises(UnknownState):
        await get(kept, A)
    await put(kept, A, b"one")
    assert (await get(kept, A), objects(tmp_path)) == ((b"one", True), ["a"])
    for _ in range(2):  # also if it is said twice
        await kept.go_on(USER, A)
        assert (await get(kept, A), objects(tmp_path)) == ((b"one", False), ["a.live"])
    await put(kept, A, b"two")
    assert (await get(kept, A), objects(tmp_path)) == ((b"two", True), ["a"])


async def test_a_session_that_was_not_put_aside_goes_on_without_a_state(tmp_path: Path) -> None:
    kept = kept_in(tmp_path / "sessions")
    await kept.go_on(USER, A)  # there is not even a folder
    await put(kept, B)
    await kept.go_on(USER, A)
    assert objects(tmp_path) == ["b"]


async def test_of_two_states_that_a_killed_server_left_the_one_that_the_session_ended_with_counts(
    tmp_path: Path,
) -> None:
    kept = kept_in(tmp_path)
    await put(kept, A, b"old")
    await kept.go_on(USER, A)
    before = files(tmp_path)
    await put(kept, A, b"new")
    put_back(before)  # as if the server had been killed before it removed them
    assert objects(tmp_path) == ["a", "a.live"]
    assert await get(kept, A) == (b"new", True)
    await kept.go_on(USER, A)
    assert (await get(kept, A), names(tmp_path) - data(tmp_path)) == ((b"new", False), {f"{A}.live"})


async def test_a_save_that_is_broken_off_leaves_both_the_state_and_that_the_session_went_on(tmp_path: Path) -> None:
    kept = kept_in(tmp_path)
    await put(kept, A, b"old")
    await kept.go_on(USER, A)
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the test is about the end of the scope
        async with kept.writing(USER, A, nobody) as writer:
            writer.begin("files")
            await writer.add(b"half")
            raise ZeroDivisionError
    assert await get(kept, A) == (b"old", False)
    with anyio.CancelScope() as scope:
        async with kept.writing(USER, A, nobody) as writer:
            writer.begin("files")
            scope.cancel()
            await writer.add(bytes(1 << 21))
    assert (await get(kept, A), objects(tmp_path)) == ((b"old", False), ["a.live"])
    assert [*tmp_path.rglob("*.part")] == []


async def test_what_is_removed_leaves_no_bytes(tmp_path: Path) -> None:
    kept = kept_in(tmp_path)
    await put(kept, A, b"old")
    await kept.go_on(USER, A)
    before = files(tmp_path)
    await put(kept, A, b"new")
    put_back(before)
    assert len(files(tmp_path)) == 4
    assert await kept.remove(USER, A)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert not await kept.remove(USER, A)
    await put(kept, A, b"again")
    await kept.go_on(USER, A)
    assert await kept.remove(USER, A)  # under the other name alone
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


async def test_who_reads_a_state_reads_it_to_its_end_whatever_becomes_of_it(tmp_path: Path) -> None:
    kept, content = kept_in(tmp_path), b"".join(i.to_bytes(4) for i in range(700_000))
    await put(kept, A, content)
    async with kept.reading(USER, A) as (reader, ended):
        found, pieces = bytearray(), 0
        async for part in reader.section(reader.manifest.layers[0]):
            found += part
            pieces += 1
            if pieces == 1:
                await kept.go_on(USER, A)
                await put(kept, A, b"new")
                await kept.remove(USER, A)
    assert (bytes(found), ended, pieces > 1) == (content, True, True)


async def test_others_see_replace_remove_and_count_nothing(tmp_path: Path) -> None:
    kept = kept_in(tmp_path, Bounds(2, 1 << 30, 1e9))
    await put(kept, A, b"mine")
    for act in (get(kept, A, TOKEN), get(kept, A, Principal(USER.issuer, "else"))):
        with pytest.raises(UnknownState):
            await act
    await kept.go_on(TOKEN, A)
    assert not await kept.remove(TOKEN, A)
    for number, session_id in enumerate((A, B, C)):
        await put(kept, session_id, b"theirs", owner=TOKEN, after=number)
    assert await get(kept, A) == (b"mine", True)
    assert (await kept.use(USER)).startswith("1 of 2, ")
    assert (await kept.use(TOKEN)).startswith("2 of 2, ")
    with pytest.raises(UnknownState):
        await get(kept, A, TOKEN)


async def test_one_that_is_put_aside_and_one_that_is_saved_under_the_same_name_never_meet(tmp_path: Path) -> None:
    bounds = Bounds(1, 1 << 30, 1e9)
    store = FolderStore(tmp_path)
    kept, saved = KeptSessions(store, bounds), SavedSessions(store, bounds)
    for name in (A, f"{A}.live"):
        async with saved.writing(USER, name) as writer:
            writer.begin("files")
            await writer.complete(described(name, 0, [await writer.end()]))
    with pytest.raises(UnknownState):
        await get(kept, A)
    await kept.go_on(USER, A)
    assert not await kept.remove(USER, A)
    assert [one.name for one in await saved.all(USER)] == [f"{A}.live"]
    await put(kept, A, b"kept")
    assert [one.name for one in await saved.all(USER)] == [f"{A}.live"]
    await saved.delete(USER, f"{A}.live")
    assert await get(kept, A) == (b"kept", True)


# What is beyond the bounds


async def test_beyond_the_number_the_oldest_go_under_either_name(tmp_path: Path) -> None:
    kept = kept_in(tmp_path, Bounds(2, 1 << 30, 1e9))
    await put(kept, A, after=0)
    await kept.go_on(USER, A)
    await put(kept, B, after=1)
    assert objects(tmp_path) == ["a.live", "b"]
    await put(kept, C, after=2)
    assert objects(tmp_path) == ["b", "c"]


async def test_beyond_the_bytes_the_oldest_go(tmp_path: Path) -> None:
    content = b"".join(i.to_bytes(4) for i in range(50_000))
    await put(kept_in(tmp_path / "other"), A, content)
    one = sum(map(len, files(tmp_path / "other").values()))
    kept = kept_in(tmp_path / "this", Bounds(100, 2 * one + one // 2, 1e9))
    for number, session_id in enumerate((A, B, C)):
        await put(kept, session_id, content, after=number)
    assert objects(tmp_path / "this") == ["b", "c"]


async def test_too_old_ones_go(tmp_path: Path) -> None:
    kept = kept_in(tmp_path, Bounds(100, 1 << 30, 86400.0))
    await put(kept, A, after=-2 * 86400)
    assert objects(tmp_path) == ["a"]  # never the last one
    await put(kept, B)
    assert objects(tmp_path) == ["b"]


async def test_those_of_live_sessions_never_go_under_either_name(tmp_path: Path) -> None:
    kept = kept_in(tmp_path, Bounds(1, 1, 1.0))
    live = {A, B}
    aside = partial(put, kept, needed=live.__contains__)
    await aside(A, after=0)
    await kept.go_on(USER, A)
    await aside(B, after=1)
    await aside(C, after=2)
    await aside(D, after=3)
    assert objects(tmp_path) == ["a.live", "b", "d"]
    live.clear()
    await aside(C, after=4)
    assert objects(tmp_path) == ["c"]


async def test_one_that_is_put_aside_again_counts_once(tmp_path: Path) -> None:
    kept = kept_in(tmp_path, Bounds(2, 1 << 30, 1e9))
    await put(kept, A, after=0)
    await put(kept, B, after=1)
    await kept.go_on(USER, B)
    await put(kept, B, after=2)
    assert objects(tmp_path) == ["a", "b"]


# What is remembered of ages


async def test_descriptions_are_read_once(tmp_path: Path) -> None:
    store = Counting(tmp_path)
    kept = KeptSessions(store, MANY)
    for number, session_id in enumerate((A, B, C, D)):
        await put(kept, session_id, after=number)
        assert store.opened == (number + 1) * (WRITING + 1)
    await put(kept, A, after=9)
    assert store.opened == 5 * (WRITING + 1)
    await kept.go_on(USER, A)
    await put(kept, B, after=10)
    assert store.opened == 6 * (WRITING + 1) + 1  # the new one, and the one that has another name


async def test_what_took_the_place_of_another_is_read_again_and_what_another_server_adds_counts(tmp_path: Path) -> None:
    bounds = Bounds(2, 1 << 30, 1e9)
    mine, theirs = kept_in(tmp_path, bounds), kept_in(tmp_path, MANY)
    await put(mine, A, after=0)
    await put(mine, B, after=1)
    await put(theirs, A, after=2)  # as long as the one that is known: only its tag is another one
    await put(mine, C, after=3)
    assert objects(tmp_path) == ["a", "c"]
    await put(theirs, D, after=4)
    await put(theirs, B, after=5)
    await put(mine, C, after=6)
    assert objects(tmp_path) == ["b", "c"]


async def test_what_another_server_removed_is_no_error_and_does_not_count(tmp_path: Path) -> None:
    bounds = Bounds(2, 1 << 30, 1e9)
    mine, theirs = kept_in(tmp_path, bounds), kept_in(tmp_path, bounds)
    await put(mine, A, after=0)
    await put(mine, B, after=1)
    await theirs.remove(USER, B)
    await put(mine, C, after=2)
    assert objects(tmp_path) == ["a", "c"]


async def test_one_that_cannot_be_read_is_tried_again_and_never_goes(tmp_path: Path) -> None:
    store = Counting(tmp_path)
    kept = KeptSessions(store, Bounds(1, 1 << 30, 1e9))
    await put(kept, A, after=0)
    damaged = description(tmp_path, A)
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1])
    await put(kept, B, after=1)
    await put(kept, C, after=2)
    assert (objects(tmp_path), store.opened) == (["a", "c"], 3 * WRITING + 1 + 2 + 2)
    with pytest.raises(BadState, match="is damaged"):
        await get(kept, A)
    damaged.write_bytes(whole)
    await put(kept, C, after=3)
    assert objects(tmp_path) == ["c"]


# Renaming in a folder


async def create(store: FolderStore, name: str, content: bytes) -> None:
    async with store.create("me", name) as sink:
        await sink.write(content)
        await sink.complete()


async def content_of(store: FolderStore, name: str) -> bytes | None:
    async with store.open("me", name) as source:
        return await source.read(0, source.size) if source is not None else None


async def test_an_object_that_gets_another_name_takes_the_place_of_what_has_it(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    await create(store, "old", b"content")
    (before,) = await store.entries("me")
    await store.rename("me", "old", "new")
    (after,) = await store.entries("me")
    assert (after.name, after.size, after.tag) == ("new", 7, before.tag)
    await create(store, "old", b"other")
    async with store.open("me", "new") as source:
        await store.rename("me", "old", "new")
        assert source is not None
        assert await source.read(0, 10) == b"content"  # who reads it reads it to the end
    assert (await content_of(store, "old"), await content_of(store, "new")) == (None, b"other")


async def test_where_there_is_no_object_there_is_nothing_to_rename(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "sessions")
    await store.rename("me", "old", "new")  # nor a folder
    assert not (tmp_path / "sessions").exists()
    await create(store, "new", b"content")
    await store.rename("me", "old", "new")
    assert await content_of(store, "new") == b"content"
    await store.rename("you", "new", "old")
    assert await content_of(store, "new") == b"content"


async def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "1m") as disk:
        store = FolderStore(disk)
        await create(store, "old", b"content")
        await anyio.run_process(["mount", "-o", "remount,ro", str(disk)])
        with pytest.raises(StoreFailed, match=f"{disk}, cannot be used: Read-only file system"):
            await store.rename("me", "old", "new")
        assert (await content_of(store, "old"), await content_of(store, "new")) == (b"content", None)


async def test_a_session_does_not_go_on_where_that_cannot_be_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    kept = kept_in(tmp_path)
    await put(kept, A, b"content")
    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", refuse)
        with pytest.raises(StoreFailed, match="cannot be used: Operation not permitted"):
            await kept.go_on(USER, A)
    assert await get(kept, A) == (b"content", True)


async def test_a_state_counts_as_put_aside_even_if_the_older_one_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = kept_in(tmp_path)
    await put(kept, A, b"old")
    await kept.go_on(USER, A)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refuse_states)
        await put(kept, A, b"new")
    assert (await get(kept, A), objects(tmp_path)) == ((b"new", True), ["a", "a.live"])


_unlink = Path.unlink


def refuse_states(path: Path, *, missing_ok: bool = False) -> None:
    """Refuses to remove complete objects."""
    if path.suffix == ".state":
        raise PermissionError(1, "Operation not permitted")
    _unlink(path, missing_ok=missing_ok)
