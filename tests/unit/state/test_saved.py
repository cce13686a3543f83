"""The saved sessions of all callers: whose they are, what they may be called, how many stay, and what cannot be opened."""

import hashlib
import json
import secrets
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.base.errors import BadState, CapacityReached, InvalidArgument, UnknownState
from llm_sandbox_mcp.base.principal import TOKEN, USER, Principal
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.state import streams
from llm_sandbox_mcp.state.bounds import Bounds
from llm_sandbox_mcp.state.encoding import CHUNK, HEAD, Encoder, Section
from llm_sandbox_mcp.state.folder import FolderStore
from llm_sandbox_mcp.state.manifest import FORMAT, Manifest
from llm_sandbox_mcp.state.saved import SavedSessions, checked_name
from llm_sandbox_mcp.state.store import Source
from llm_sandbox_mcp.state.streams import Reader

pytestmark = pytest.mark.anyio

NOW = datetime.now(UTC) - timedelta(hours=1)


def saved_in(folder: Path, starts: Collection[str] = (), **limits: object) -> SavedSessions:
    section = load_profile(over={"sessions": limits}).sessions
    return SavedSessions(FolderStore(folder), Bounds(section.saved, section.saved_size, section.saved_age), starts)


def described(name: str, layers: Sequence[Section], created: datetime | None = None) -> Manifest:
    return Manifest(
        format=FORMAT,
        name=name,
        created=created or datetime.now(UTC),
        version="1.0",
        language="python",
        runs=3,
        variables={"python": 2},
        files=1,
        layers=tuple(layers),
    )


async def save(
    saved: SavedSessions, name: str, content: bytes = b"", owner: Principal = USER, created: datetime | None = None
) -> None:
    async with saved.writing(owner, name) as writer:
        writer.begin("files")
        await writer.add(content)
        await writer.complete(described(name, [await writer.end()], created))


async def read(saved: SavedSessions, name: str, owner: Principal = USER) -> bytes:
    async with saved.reading(owner, name) as reader:
        return b"".join([part for layer in reader.manifest.layers async for part in reader.section(layer)])


async def names(saved: SavedSessions, owner: Principal = USER) -> list[str]:
    return [one.name for one in await saved.all(owner)]


async def test_large_contents_come_back(tmp_path: Path) -> None:
    saved, content = saved_in(tmp_path), b"".join(i.to_bytes(4) for i in range(700_000))
    await save(saved, "geo", content)
    assert await read(saved, "geo") == content


async def test_each_section_comes_back_by_itself(tmp_path: Path) -> None:
    saved, contents = saved_in(tmp_path), [bytes(CHUNK + 1), b"", b"small"]
    async with saved.writing(USER, "geo") as writer:
        sections: list[Section] = []
        for content in contents:
            writer.begin("files")
            await writer.add(content)
            sections.append(await writer.end())
        size = await writer.complete(described("geo", sections))
    assert size == next(tmp_path.rglob("*.state")).stat().st_size
    async with saved.reading(USER, "geo") as reader:
        assert reader.manifest.layers == tuple(sections)
        for section, content in reversed([*zip(sections, contents, strict=True)]):
            assert b"".join([part async for part in reader.section(section)]) == content


async def test_an_owner_sees_and_replaces_only_their_own(tmp_path: Path) -> None:
    saved = saved_in(tmp_path)
    await save(saved, "geo", b"mine")
    await save(saved, "geo", b"theirs", TOKEN)
    assert await read(saved, "geo") == b"mine"
    assert await read(saved, "geo", TOKEN) == b"theirs"
    await saved.delete(TOKEN, "geo")
    assert (await names(saved), await names(saved, TOKEN)) == (["geo"], [])
    with pytest.raises(UnknownState, match="no session is saved as 'geo'"):
        await read(saved, "geo", TOKEN)
    with pytest.raises(UnknownState):
        await saved.delete(TOKEN, "geo")


async def test_no_two_owners_share_a_place(tmp_path: Path) -> None:
    saved = saved_in(tmp_path)
    for owner in (Principal("a", "b"), Principal("a\0b", ""), Principal("", "a\0b"), Principal("../../etc", "passwd")):
        assert await names(saved, owner) == []
        if "\0" not in owner.issuer:
            await save(saved, "geo", owner=owner)
    assert {path.parent.parent for path in tmp_path.rglob("*.state")} == {tmp_path}


GOOD = ["a", "7", "geo", "run 12", "model-v1.2_final", "x" * 100]
BAD = [
    "",
    " ",
    "a ",
    ".a",
    "a.",
    "..",
    "../a",
    "a/b",
    "/etc/passwd",
    "a\\b",
    "a\0",
    "a\n",
    "é",
    "\ud800",
    "-a",
    "x" * 101,
]


def test_names_are_plain() -> None:
    assert [checked_name(name) for name in GOOD] == GOOD


@pytest.mark.parametrize("name", [*BAD, "x" * 10_000])
def test_other_names_are_refused_in_one_line(name: str) -> None:
    with pytest.raises(InvalidArgument, match="cannot be the name of a saved session") as caught:
        checked_name(name)
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


@given(st.text())
def test_a_name_that_is_allowed_is_one_plain_file(name: str) -> None:
    try:
        checked_name(name)
    except InvalidArgument:
        return
    assert name.isascii()
    assert Path("/a", name).parent == Path("/a")


async def test_beyond_the_number_the_oldest_go(tmp_path: Path) -> None:
    saved = saved_in(tmp_path, saved=2)
    for number in range(4):
        await save(saved, f"s{number}", created=NOW + timedelta(seconds=number))
    assert await names(saved) == ["s3", "s2"]
    await save(saved, "theirs", owner=TOKEN)
    assert await names(saved) == ["s3", "s2"]


async def test_beyond_the_bytes_the_oldest_go(tmp_path: Path) -> None:
    content = b"".join(i.to_bytes(4) for i in range(50_000))
    await save(saved_in(tmp_path / "other"), "s", content)
    one = next((tmp_path / "other").rglob("*.state")).stat().st_size
    saved = saved_in(tmp_path / "this", saved_size=f"{2 * one + one // 2}B")
    for number in range(3):
        await save(saved, f"s{number}", content, created=NOW + timedelta(seconds=number))
    assert await names(saved) == ["s2", "s1"]


async def test_what_cannot_be_read_is_tried_once_and_again_when_another_is_in_its_place(tmp_path: Path) -> None:
    opened: list[str] = []

    class Watched(FolderStore):
        @asynccontextmanager
        async def open(self, owner: str, name: str) -> AsyncIterator[Source | None]:
            opened.append(name)
            async with super().open(owner, name) as source:
                yield source

    saved = SavedSessions(Watched(tmp_path), Bounds(2, 1 << 30, 1e9))
    await save(saved, "geo")
    file = next(tmp_path.rglob("*.state")).with_stem("odd")
    file.write_bytes(b"what no server wrote")
    for number in range(3):
        await save(saved, f"s{number}")
    assert opened.count("odd") == 1
    file.with_stem("s2").replace(file)
    await save(saved, "last")
    assert opened.count("odd") == 2


async def test_one_that_is_larger_than_all_may_be_is_refused_and_replaces_nothing(tmp_path: Path) -> None:
    saved = saved_in(tmp_path, saved_size="10KiB")
    await save(saved, "s", b"small")
    with pytest.raises(CapacityReached, match="larger than 10KiB"):
        await save(saved, "s", b"".join(i.to_bytes(4) for i in range(500_000)))
    assert await read(saved, "s") == b"small"


async def test_too_old_ones_go_but_never_the_latest_whatever_the_clock_says(tmp_path: Path) -> None:
    saved = saved_in(tmp_path, saved_age="1d")
    await save(saved, "old", created=datetime.now(UTC) - timedelta(days=2))
    assert await names(saved) == ["old"]
    await save(saved, "future", created=datetime.now(UTC) + timedelta(days=400))
    assert await names(saved) == ["future"]
    await save(saved, "past", created=datetime.now(UTC) - timedelta(days=400))
    assert await names(saved) == ["future", "past"]


BEYOND: Mapping[str, Mapping[str, object]] = {
    "number": {"saved": 2},
    "bytes": {"saved_size": "450KiB"},
    "age": {"saved_age": "1h"},
}
"""Bounds beyond which the first of some that are saved are."""
AGES = (7200, 7000, 20, 10)
"""Seconds since they were saved."""


@pytest.mark.parametrize("beyond", BEYOND)
async def test_what_sessions_start_from_stays_beyond_every_bound(tmp_path: Path, beyond: str) -> None:
    content = b"".join(hashlib.sha256(bytes([i % 256, i // 256])).digest() for i in range(6000))
    for starts, left in (
        ((), ["s3", "s2"]),
        (("s1", "absent"), ["s3", "s2", "s1"]),
        (("s0", "s1"), ["s3", "s2", "s1", "s0"]),
    ):
        saved = saved_in(tmp_path / str(len(left)), starts, **BEYOND[beyond])
        for owner in (USER, TOKEN):
            for number, age in enumerate(AGES):
                created = datetime.now(UTC) - timedelta(seconds=age)
                await save(saved, f"s{number}", content, owner=owner, created=created)
        assert await names(saved) == left
        assert await names(saved, TOKEN) == ["s3", "s2"], "only those of the server's own user stay"


async def test_what_sessions_start_from_can_be_replaced_and_deleted(tmp_path: Path) -> None:
    saved = saved_in(tmp_path, ("geo",), saved=1)
    await save(saved, "geo", b"old")
    await save(saved, "geo", b"new")
    assert await read(saved, "geo") == b"new"
    await saved.delete(USER, "geo")
    assert await names(saved) == []


async def test_each_state_of_a_name_has_another_tag_and_none_has_an_empty_one(tmp_path: Path) -> None:
    saved, others = saved_in(tmp_path), saved_in(tmp_path)
    assert await saved.tag(USER, "geo") == ""
    tags = []
    for _ in range(3):
        await save(others, "geo", b"the same", created=NOW)
        tags.append(await saved.tag(USER, "geo"))
        assert await saved.tag(USER, "geo") == await others.tag(USER, "geo") == tags[-1]
    await save(others, "other", b"the same", created=NOW)
    await save(others, "geo", b"the same", owner=TOKEN, created=NOW)
    assert await saved.tag(USER, "geo") == tags[-1]
    assert await saved.tag(TOKEN, "geo") not in tags
    assert len({"", *tags}) == 4
    await saved.delete(USER, "geo")
    assert await saved.tag(USER, "geo") == ""
    with pytest.raises(InvalidArgument):
        await saved.tag(USER, "../geo")


async def test_readers_that_share_read_each_small_section_once_and_keep_no_large_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_SHARED", CHUNK)
    contents = [b"small", secrets.token_bytes(CHUNK), b"", secrets.token_bytes(CHUNK + 1)]
    saved = saved_in(tmp_path)
    async with saved.writing(USER, "geo") as writer:
        sections: list[Section] = []
        for content in contents:
            writer.begin("files")
            await writer.add(content)
            sections.append(await writer.end())
        await writer.complete(described("geo", sections))
    begun: list[int] = []
    plainly = Reader._read_section

    async def counted(reader: Reader, section: Section) -> AsyncIterator[bytes]:
        begun.append(sections.index(section))
        async for data in plainly(reader, section):
            yield data

    monkeypatch.setattr(Reader, "_read_section", counted)

    async with saved.reading(USER, "geo") as reader:
        reader.share()

        async def read_all() -> None:
            for section, content in zip(sections, contents, strict=True):
                assert b"".join([part async for part in reader.section(section)]) == content

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(read_all)
        assert sorted(begun) == [0, 1, 2, *[3] * 5]
        kept = sum(len(data) for pieces in reader._shared.values() for data in pieces)
        assert kept == sum(len(content) for content in contents[:3])


async def test_a_reader_that_gives_up_or_fails_takes_nothing_from_those_that_share_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, content = saved_in(tmp_path), secrets.token_bytes(3 * CHUNK)
    await save(saved, "geo", content)
    async with saved.reading(USER, "geo") as reader:
        reader.share()
        [section] = reader.manifest.layers
        reads = list[bytes]()
        scopes = [anyio.CancelScope() for _ in range(3)]
        plainly = Reader._read

        async def stopped(one: Reader, source: Source, name: str, start: int, length: int) -> bytes:
            if not scopes[0].cancel_called:
                scopes[0].cancel()
            return await plainly(one, source, name, start, length)

        monkeypatch.setattr(Reader, "_read", stopped)

        async def read_one(scope: anyio.CancelScope) -> None:
            with scope:
                reads.append(b"".join([part async for part in reader.section(section)]))

        async with anyio.create_task_group() as tasks:
            for scope in scopes:
                tasks.start_soon(read_one, scope)
        assert reads == [content, content]
        assert scopes[0].cancelled_caught


async def test_what_this_server_cannot_read_never_goes(tmp_path: Path) -> None:
    saved = saved_in(tmp_path, saved=1)
    await write_manifest(tmp_path, {"format": FORMAT + 1, "version": "9.1"})
    for number in range(3):
        await save(saved, f"s{number}", created=NOW + timedelta(seconds=number))
    assert await names(saved) == ["s2", "geo"]


async def test_one_in_use_never_goes(tmp_path: Path) -> None:
    saved = saved_in(tmp_path, saved=1)
    await save(saved, "used", b"content", created=NOW)
    async with saved.reading(USER, "used") as reader:
        await save(saved, "next", created=NOW + timedelta(seconds=1))
        assert await names(saved) == ["next", "used"]
        assert [part async for part in reader.section(reader.manifest.layers[0])] == [b"content"]
    await save(saved, "last", created=NOW + timedelta(seconds=2))
    assert await names(saved) == ["last"]


async def test_a_damaged_one_is_refused_and_listed_by_name(tmp_path: Path) -> None:
    saved = saved_in(tmp_path)
    await save(saved, "geo", b"content")
    file = next(tmp_path.rglob("*.state"))
    whole = file.read_bytes()
    for damaged, reason in (
        (whole[:-1], "its end is missing, or is not at the end"),
        (b"", "its end is missing, or is not at the end"),
        (whole[9:], "it ends too early"),
    ):
        file.write_bytes(damaged)
        with pytest.raises(BadState, match=f"'geo' is damaged: .*{reason}.*; delete it, and save the session again"):
            await read(saved, "geo")
        (listed,) = await saved.all(USER)
        assert (listed.manifest, listed.name) == (None, "geo")
        assert "is damaged" in listed.problem
    file.write_bytes(whole[:30] + b"?" + whole[31:])  # in its contents: its description is whole
    assert (await saved.all(USER))[0].manifest is not None
    with pytest.raises(BadState, match="'geo' is damaged: a checksum does not match"):
        await read(saved, "geo")
    await saved.delete(USER, "geo")


async def write_manifest(folder: Path, manifest: object) -> None:
    saved = saved_in(folder)
    await save(saved, "geo")
    text = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    next(folder.rglob("*.state")).write_bytes(HEAD + Encoder().end(text))


async def test_one_of_a_later_version_is_refused_by_name(tmp_path: Path) -> None:
    await write_manifest(tmp_path, {"format": FORMAT + 1, "version": "9.1", "anything": "else"})
    with pytest.raises(BadState, match=r"'geo' was saved by a later version of the server, '9\.1'; open it with that"):
        await read(saved_in(tmp_path), "geo")


@pytest.mark.parametrize("number", [FORMAT - 1, 0])
async def test_one_of_an_earlier_version_is_refused_by_name(tmp_path: Path, number: int) -> None:
    await write_manifest(tmp_path, {"format": number, "version": "0.1", "anything": "else"})
    with pytest.raises(
        BadState, match=r"'geo' was saved by an earlier version of the server, '0\.1'; open it with that"
    ):
        await read(saved_in(tmp_path), "geo")


@pytest.mark.parametrize("layers", [0, 1001])
async def test_a_description_with_no_layer_or_far_too_many_is_refused_by_name(tmp_path: Path, layers: int) -> None:
    await save(saved_in(tmp_path), "geo")
    async with saved_in(tmp_path).reading(USER, "geo") as reader:
        edited = reader.manifest.model_copy(update={"layers": reader.manifest.layers * layers})
    await write_manifest(tmp_path, edited.model_dump_json().encode())
    with pytest.raises(BadState, match="'geo' is damaged: its description cannot be read"):
        await read(saved_in(tmp_path), "geo")


@pytest.mark.parametrize(
    "text", [b"", b"null", b"[]", b"{}", b'{"format": true}', b"\xff", b"[" * 100_000, b"9" * 9999]
)
async def test_a_description_edited_by_hand_is_refused_by_name(tmp_path: Path, text: bytes) -> None:
    await write_manifest(tmp_path, text)
    with pytest.raises(BadState, match="'geo' is damaged: its description cannot be read"):
        await read(saved_in(tmp_path), "geo")


async def test_a_section_that_leads_elsewhere_is_refused_by_name(tmp_path: Path) -> None:
    saved = saved_in(tmp_path)
    await save(saved, "geo", b"content")
    async with saved.reading(USER, "geo") as reader:
        manifest = reader.manifest
    (section,) = manifest.layers
    for changes in (
        {"start": 2**70},
        {"start": 2**59},
        {"start": 0},
        {"chunks": 2**30},
        {"chunks": 2},
        {"chunks": 0},
        {"size": 1},
        {"checksum": ""},
    ):
        edited = manifest.model_copy(update={"layers": (section.model_copy(update=changes),)})
        await write_manifest(tmp_path, edited.model_dump_json().encode())
        with pytest.raises(BadState, match="'geo' is damaged"):
            await read(saved, "geo")


async def test_a_caller_that_leaves_while_it_saves_changes_nothing(tmp_path: Path) -> None:
    saved = saved_in(tmp_path)
    await save(saved, "geo", b"old")
    with anyio.CancelScope() as scope:
        async with saved.writing(USER, "geo") as writer:
            writer.begin("files")
            await writer.add(bytes(1 << 21))
            scope.cancel()
            await writer.complete(described("geo", [await writer.end()]))
    assert await read(saved, "geo") == b"old"
    assert [path.name for path in tmp_path.rglob("*.part")] == []
