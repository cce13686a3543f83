"""Sessions that are put aside: under which name, whose they are, how many stay, and that none meets one that is saved."""

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from llm_sandbox_mcp.base.errors import BadState, StoreFailed, UnknownState
from llm_sandbox_mcp.base.principal import TOKEN, USER, Principal
from llm_sandbox_mcp.state import encoding
from llm_sandbox_mcp.state.bounds import Bounds
from llm_sandbox_mcp.state.encoding import Section
from llm_sandbox_mcp.state.folder import FolderStore
from llm_sandbox_mcp.state.kept import KeptSessions
from llm_sandbox_mcp.state.manifest import FORMAT, KeptFile, Manifest
from llm_sandbox_mcp.state.saved import SavedSessions
from llm_sandbox_mcp.state.store import Sink, Source
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


async def test_one_that_cannot_be_read_is_tried_again_once_it_has_changed_and_never_goes(tmp_path: Path) -> None:
    store = Counting(tmp_path)
    kept = KeptSessions(store, Bounds(1, 1 << 30, 1e9))
    await put(kept, A, after=0)
    damaged = description(tmp_path, A)
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1])
    await put(kept, B, after=1)
    await put(kept, C, after=2)
    assert (objects(tmp_path), store.opened) == (["a", "c"], 3 * WRITING + 1 + 2 + 1)
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


# States of several objects


async def in_layers(kept: KeptSessions, *contents: bytes, session_id: str = A, after: float = 0) -> list[Section]:
    """Writes a state while its session goes on, each content as what has changed since the one before."""
    layers: Sequence[Section] = ()
    for number, content in enumerate(contents):
        layers = await put(kept, session_id, content, after=after + number, earlier=layers, live=True)
    return [*layers]


async def test_layers_are_read_from_the_object_that_each_is_in(tmp_path: Path) -> None:
    kept, large = kept_in(tmp_path), b"".join(i.to_bytes(4) for i in range(400_000))
    layers = await in_layers(kept, b"one ", large, b" three")
    assert (await get(kept, A), objects(tmp_path)) == ((b"one " + large + b" three", False), ["a.live"])
    assert data(tmp_path) == {layer.object for layer in layers} and len(data(tmp_path)) == 3
    async with kept_in(tmp_path).reading(USER, A) as (reader, _):  # in another server
        for layer, content in reversed([*zip(layers, (b"one ", large, b" three"), strict=True)]):
            assert b"".join([part async for part in reader.section(layer)]) == content


async def test_a_whole_state_removes_the_data_of_older_ones_and_nothing_that_it_uses(tmp_path: Path) -> None:
    kept = kept_in(tmp_path)
    first, second = await in_layers(kept, b"1", b"2")
    await in_layers(kept, b"other", session_id=B)
    (third,) = await put(kept, A, b"new", after=2)
    assert data(tmp_path, A) == {third.object}
    assert (await get(kept, A), await get(kept, B)) == ((b"new", True), (b"other", False))
    assert objects(tmp_path) == ["a", "b.live"]
    await put(kept, A, b"er", after=3, earlier=[third], live=True)
    assert (await get(kept, A), objects(tmp_path)) == ((b"newer", False), ["a.live", "b.live"])
    assert {first.object, second.object}.isdisjoint(names(tmp_path))


async def test_an_artifact_of_an_older_state_stays_as_long_as_one_uses_it(tmp_path: Path) -> None:
    kept = kept_in(tmp_path)
    async with kept.writing(USER, A, nobody, live=True) as writer:
        writer.begin("files")
        layer = await writer.end()
        writer.begin("artifact")
        await writer.add(b"picture")
        artifact = KeptFile(name="picture.png", content=await writer.end())
        await writer.complete(described(A, 0, [layer]).model_copy(update={"artifacts": (artifact,)}))
    async with kept.writing(USER, A, nobody, live=True) as writer:
        writer.begin("files")
        layer = await writer.end()
        await writer.complete(described(A, 1, [layer]).model_copy(update={"artifacts": (artifact,)}))
    assert data(tmp_path) == {layer.object, artifact.content.object}
    async with kept.reading(USER, A) as (reader, _):
        (file,) = reader.manifest.artifacts
        assert [part async for part in reader.section(file.content)] == [b"picture"]
    await put(kept, A, b"without", after=2)
    assert (len(data(tmp_path)), objects(tmp_path)) == (1, ["a"])


async def test_data_that_is_missing_or_damaged_is_found_by_name(tmp_path: Path) -> None:
    kept = kept_in(tmp_path)
    layers = await in_layers(kept, b"one", b"two", b"three")
    for layer in layers:
        path = description(tmp_path, layer.object)
        whole = path.read_bytes()
        path.unlink()
        with pytest.raises(BadState, match=f"'{A}' is damaged: a part of it is missing"):
            await get(kept, A)
        for damaged in (b"", whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1]), bytes(len(whole))):
            path.write_bytes(damaged)
            with pytest.raises(BadState, match=f"'{A}' is damaged: "):
                await get(kept, A)
        another = layers[layers[0] == layer]
        path.write_bytes(description(tmp_path, another.object).read_bytes())
        with pytest.raises(BadState, match=f"'{A}' is damaged: "):
            await get(kept, A)
        path.write_bytes(whole)
    assert await get(kept, A) == (b"onetwothree", False)


async def test_a_description_that_leads_to_what_is_no_data_of_the_session_is_refused_by_name(tmp_path: Path) -> None:
    kept = kept_in(tmp_path)
    (own,) = await put(kept, A, b"mine")
    (other,) = await put(kept, B, b"theirs")
    await put(kept, C, b"gone on")
    await kept.go_on(USER, C)
    path = description(tmp_path, A)
    manifest = read_description(path)
    for name in (f"{A}.live", f"{C}.live", B):  # each would be whole: the section is there
        (path.parent / f"{name}.state").write_bytes(description(tmp_path, own.object).read_bytes())
    elsewhere = "", A, f"{A}.live", B, f"{C}.live", f"{A}/../{own.object}", f"../{path.parent.name}/{own.object}", "."
    for section in (other, *(own.model_copy(update={"object": name}) for name in elsewhere)):
        encoder = encoding.Encoder()
        encoder.begin("files")
        state = encoding.HEAD + encoder.chunk(b"mine")
        edited = manifest.model_copy(update={"layers": (section,)})
        path.write_bytes(state + encoder.end(edited.model_dump_json().encode()))
        with pytest.raises(BadState, match=f"'{A}' is damaged: a part of it is missing"):
            await get(kept, A)
    path.write_bytes(encoding.HEAD + encoding.Encoder().end(manifest.model_dump_json().encode()))
    assert await get(kept, A) == (b"mine", True)


class Failing(FolderStore):
    """A folder in which objects of some names cannot be made."""

    def __init__(self, folder: Path, refuses: Callable[[str], bool]) -> None:
        super().__init__(folder)
        self.refuses = refuses

    @asynccontextmanager
    async def create(self, owner: str, name: str) -> AsyncIterator[Sink]:
        if self.refuses(name):
            raise StoreFailed("the disk is full")
        async with super().create(owner, name) as sink:
            yield sink


@pytest.mark.parametrize("live", [False, True])
async def test_a_state_that_could_not_be_described_leaves_the_old_one_whole(tmp_path: Path, live: bool) -> None:
    store = Failing(tmp_path, nobody)
    kept = KeptSessions(store, MANY)
    layers = await in_layers(kept, b"one ", b"two")
    before = files(tmp_path)
    store.refuses = lambda name: name in (A, f"{A}.live")
    for earlier in ((), layers):
        with pytest.raises(StoreFailed, match="the disk is full"):
            await put(kept, A, b"new", earlier=earlier, live=live)
        assert before.items() <= files(tmp_path).items()
        assert await get(kept, A) == (b"one two", False)
    store.refuses = nobody
    await put(kept, A, b" three", earlier=layers, live=live)
    assert await get(kept, A) == (b"one two three", not live)
    assert objects(tmp_path) == ["a.live" if live else "a"]  # and what was never described is gone


async def test_a_state_whose_description_is_broken_off_leaves_the_old_one_whole(tmp_path: Path) -> None:
    kept = kept_in(tmp_path)
    layers = await in_layers(kept, b"one ", b"two")
    before = files(tmp_path)
    with anyio.CancelScope() as scope:
        async with kept.writing(USER, A, nobody) as writer:
            writer.begin("files")
            await writer.add(b"new")
            manifest = described(A, 5, [await writer.end()])
            scope.cancel()
            await writer.complete(manifest)
    assert (files(tmp_path), await get(kept, A)) == (before, (b"one two", False))
    async with kept.writing(USER, A, nobody) as writer:
        writer.begin("files")
        await writer.add(b"never described")
    assert (files(tmp_path), await get(kept, A)) == (before, (b"one two", False))
    await put(kept, A, b" three", earlier=layers)
    assert await get(kept, A) == (b"one two three", True)


class Recording(FolderStore):
    """A folder that notes what is removed from it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.removed: list[str] = []

    async def remove(self, owner: str, name: str, tag: str = "") -> bool:
        done = await super().remove(owner, name, tag)
        if done:
            self.removed.append(name)
        return done


async def test_beyond_the_bounds_a_session_goes_with_all_of_its_objects_its_description_first(tmp_path: Path) -> None:
    store = Recording(tmp_path)
    kept = KeptSessions(store, Bounds(2, 1 << 30, 1e9))
    layers = await in_layers(kept, b"1", b"2", b"3")
    await in_layers(kept, b"4", b"5", session_id=B, after=5)
    assert objects(tmp_path) == ["a.live", "b.live"]
    assert (await kept.use(USER)).startswith("2 of 2, ")
    store.removed.clear()
    await put(kept, C, b"6", after=10)
    assert store.removed[0] == f"{A}.live"
    assert {*store.removed} == {f"{A}.live", *(layer.object for layer in layers)}
    assert (objects(tmp_path), await get(kept, B)) == (["b.live", "c"], (b"45", False))


async def test_beyond_the_bytes_the_data_of_all_layers_counts(tmp_path: Path) -> None:
    content = b"".join(i.to_bytes(4) for i in range(50_000))
    await put(kept_in(tmp_path / "other"), A, content)
    one = sum(map(len, files(tmp_path / "other").values()))
    kept = kept_in(tmp_path / "this", Bounds(100, 3 * one + one // 2, 1e9))
    await in_layers(kept, content, content)
    await put(kept, B, content, after=5)
    assert objects(tmp_path / "this") == ["a.live", "b"]
    await put(kept, C, content, after=6)
    assert objects(tmp_path / "this") == ["b", "c"]


async def test_one_that_is_being_read_does_not_go_nor_does_any_of_its_objects(tmp_path: Path) -> None:
    kept = kept_in(tmp_path, Bounds(1, 1 << 30, 1e9))
    await in_layers(kept, b"1", b"2", b"3")
    async with kept.reading(USER, A) as (reader, _):
        await put(kept, B, b"4", after=10)
        assert objects(tmp_path) == ["a.live", "b"]
        found = [part for layer in reader.manifest.layers async for part in reader.section(layer)]
        assert found == [b"1", b"2", b"3"]
    await put(kept, C, b"5", after=11)
    assert objects(tmp_path) == ["c"]


# Two servers


async def test_of_two_servers_that_write_a_session_in_turn_the_later_one_counts(tmp_path: Path) -> None:
    mine, theirs = kept_in(tmp_path), kept_in(tmp_path)
    for number in range(3):
        layers = await put(mine, A, b"mine", after=number, live=True)
        await put(mine, A, b"!", after=number, live=True, earlier=layers)
        assert (await get(theirs, A), objects(tmp_path)) == ((b"mine!", False), ["a.live"])
        await put(theirs, A, b"theirs", after=number)
        assert (await get(mine, A), objects(tmp_path)) == ((b"theirs", True), ["a"])


async def test_two_servers_that_write_a_session_at_once_leave_no_mixture(tmp_path: Path) -> None:
    """What is read is the whole state of one of them, or is refused by name."""
    servers = {letter: kept_in(tmp_path) for letter in (b"m", b"t")}
    seen: set[bytes] = set()
    ended = 0

    async def write(letter: bytes, kept: KeptSessions) -> None:
        nonlocal ended
        for number in range(15):
            layers: Sequence[Section] = ()
            for _ in range(3):
                content = letter + number.to_bytes() + bytes(3000)
                layers = await put(kept, A, content, earlier=layers, live=bool(number % 2))
        ended += 1

    async def read() -> None:
        while ended < len(servers):
            with suppress(BadState, UnknownState):
                seen.add((await get(servers[b"m"], A))[0])
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        for letter, kept in servers.items():
            tasks.start_soon(write, letter, kept)
    allowed = {
        (letter + number.to_bytes() + bytes(3000)) * times
        for letter in servers
        for number in range(15)
        for times in (1, 2, 3)
    }
    assert seen
    assert seen <= allowed
    await put(servers[b"m"], A, b"last")
    assert await get(servers[b"t"], A) == (b"last", True)


# The two names of a description


async def test_a_session_that_ends_and_goes_on_takes_its_data_with_it(tmp_path: Path) -> None:
    kept = kept_in(tmp_path)
    layers = await in_layers(kept, b"1", b"2")
    for _ in range(2):  # also if it is said twice
        await kept.end(USER, A)
        assert (await get(kept, A), objects(tmp_path)) == ((b"12", True), ["a"])
    for _ in range(2):
        await kept.go_on(USER, A)
        assert (await get(kept, A), objects(tmp_path)) == ((b"12", False), ["a.live"])
    await kept.end(TOKEN, A)  # somebody else
    await kept.end(USER, B)
    assert (objects(tmp_path), data(tmp_path)) == (["a.live"], {layer.object for layer in layers})


async def test_a_state_of_a_session_that_goes_on_removes_that_it_ended(tmp_path: Path) -> None:
    store = Recording(tmp_path)
    kept = KeptSessions(store, MANY)
    (old,) = await put(kept, A, b"old")
    await put(kept, A, b"new", after=1, live=True)
    assert (await get(kept, A), objects(tmp_path)) == ((b"new", False), ["a.live"])
    assert store.removed == [A, old.object]  # the description first


async def test_a_state_of_a_session_that_goes_on_is_not_saved_while_that_it_ended_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = kept_in(tmp_path)
    layers = await put(kept, A, b"old")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refuse_states)
        with pytest.raises(StoreFailed):
            await put(kept, A, b"new", after=1, earlier=layers, live=True)
    assert await get(kept, A) == (b"old", True)
    await put(kept, A, b"newer", after=2, live=True)
    assert await get(kept, A) == (b"newer", False)
