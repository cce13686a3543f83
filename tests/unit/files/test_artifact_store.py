"""What the artifact store keeps, drops and reports, without any sandbox."""

import threading
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from llm_sandbox_mcp.base.errors import UnknownArtifact
from llm_sandbox_mcp.base.principal import ANONYMOUS, TOKEN
from llm_sandbox_mcp.base.results import StoreStatistics
from llm_sandbox_mcp.files import artifacts
from llm_sandbox_mcp.files.artifacts import ArtifactStore
from llm_sandbox_mcp.profile.profile import load_profile
from tests.engines import MIB
from tests.pictures import png
from tests.unit.files.source import Source

pytestmark = pytest.mark.anyio


@pytest.fixture
def changes() -> list[tuple[str, tuple[str, ...]]]:
    return []


@pytest.fixture
def store(tmp_path: Path, changes: list[tuple[str, tuple[str, ...]]]) -> ArtifactStore:
    limits = load_profile().artifacts.model_copy(update={"store": 10})
    made = ArtifactStore(tmp_path / "store", limits)
    made.listen(lambda session_id, names: changes.append((session_id, names)))
    return made


async def test_a_file_that_is_dropped_to_make_room_is_reported_too(
    store: ArtifactStore, changes: list[tuple[str, tuple[str, ...]]]
) -> None:
    await store.put(Source("one"), "a", bytes(6))
    await store.put(Source("two"), "b", bytes(6))
    assert changes == [("one", ("a",)), ("two", ("b",)), ("one", ("a",))]
    assert store.of_session("one") == ()


async def test_the_session_that_has_most_makes_room_with_its_oldest(store: ArtifactStore) -> None:
    await store.put(Source("one"), "a", bytes(3))
    for number in range(20):
        await store.put(Source("two"), str(number), bytes(3))
        await store.put(Source("two"), f"empty {number}", b"")
    assert [artifact.name for artifact in store.of_session("one")] == ["a"]
    assert [artifact.name for artifact in store.of_session("two") if artifact.size] == ["18", "19"]
    await store.put(Source("three"), "a", bytes(4))  # what is new stays
    assert store.of_session("three")
    assert store.of_session("one")


async def test_the_latest_file_stays_alone_if_it_is_larger_than_the_whole_store(store: ArtifactStore) -> None:
    for session_id, name, size in (("one", "a", 5), ("two", "b", 5), ("one", "c", 11)):
        await store.put(Source(session_id), name, bytes(size))
    assert store.of_session("two") == ()
    assert [artifact.name for artifact in store.of_session("one")] == ["c"]
    assert store.statistics() == StoreStatistics(artifacts=1, size=11)


async def test_a_store_that_is_exactly_full_drops_nothing(store: ArtifactStore) -> None:
    await store.put(Source("one"), "a", bytes(6))
    await store.put(Source("two"), "b", bytes(4))
    assert store.statistics() == StoreStatistics(artifacts=2, size=10)


async def test_a_session_with_many_small_files_drops_none_of_others(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "store", load_profile().artifacts.model_copy(update={"store_files": 3}))
    await store.put(Source("one"), "a", bytes(100))
    for number in range(10):
        await store.put(Source("two"), str(number), b"")
    assert [artifact.name for artifact in store.of_session("one")] == ["a"]
    assert [artifact.name for artifact in store.of_session("two")] == ["8", "9"]


async def test_clear_drops_the_files_of_one_session_and_reports_once(
    store: ArtifactStore, changes: list[tuple[str, tuple[str, ...]]], tmp_path: Path
) -> None:
    for session_id, name in (("one", "a"), ("one", "b"), ("two", "c")):
        await store.put(Source(session_id), name, b"xy")
    changes.clear()
    await store.clear("one")
    await store.clear("one")
    assert changes == [("one", ("a", "b"))]
    assert [artifact.name for artifact in store.of_session("two")] == ["c"]
    assert len([*(tmp_path / "store").iterdir()]) == 1
    with pytest.raises(UnknownArtifact):
        await store.read("one", "a")


async def test_no_other_user_of_the_machine_can_look_into_the_store(store: ArtifactStore, tmp_path: Path) -> None:
    await store.put(Source("one"), "a", b"xy")
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o700


async def test_a_part_of_a_file_is_read(store: ArtifactStore) -> None:
    await store.put(Source("one"), "a", b"0123456789")
    parts = [await store.read("one", "a", *asked) for asked in ((), (3,), (3, 4), (8, 9), (10, 1))]
    assert [data for _, data in parts] == [b"0123456789", b"3456789", b"3456", b"89", b""]


async def test_a_file_that_is_dropped_while_it_is_read_is_unknown(store: ArtifactStore, tmp_path: Path) -> None:
    await store.put(Source("one"), "a", b"xy")
    for file in (tmp_path / "store").iterdir():
        file.unlink()
    with pytest.raises(UnknownArtifact):
        await store.read("one", "a")


async def test_a_picture_is_judged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ArtifactStore(tmp_path / "store", load_profile().artifacts)
    good, broken = png(3, 2), png(3, 2)[:-1] + b"x"
    judged: list[bytes] = []

    def judge(data: bytes) -> bool:
        judged.append(data)
        return data == good

    monkeypatch.setattr(artifacts, "can_be_shown", judge)
    for name, data in (
        ("good.png", good),
        ("broken.png", broken),
        ("text.png", b"text"),
        ("large.png", good + bytes(MIB)),
    ):
        await store.put(Source("one"), name, data)
    seen = []

    async def look(name: str) -> None:
        seen.append((name, await store.picture("one", name)))

    async with anyio.create_task_group() as tasks:
        for name in ("good.png", "broken.png", "text.png", "large.png", "none.png") * 5:
            tasks.start_soon(look, name)
    assert sorted(judged) == sorted([good, broken])
    assert {name for name, data in seen if data is not None} == {"good.png"}
    assert {data for _, data in seen} == {good, None}
    await store.put(Source("one"), "broken.png", good)
    assert await store.picture("one", "broken.png") == good


async def test_pictures_are_judged_one_at_a_time_and_leave_the_threads_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ArtifactStore(tmp_path / "store", load_profile().artifacts)
    begun, goes_on = threading.Semaphore(0), threading.Event()
    at_once = []

    def judge(data: bytes) -> bool:
        at_once.append(data)
        begun.release()
        goes_on.wait(10)
        at_once.remove(data)
        return not at_once

    monkeypatch.setattr(artifacts, "can_be_shown", judge)
    for number in range(100):
        await store.put(Source("one"), f"{number}.png", png(3, 1 + number))
    seen: list[bytes | None] = []

    async def look(name: str) -> None:
        seen.append(await store.picture("one", name))

    async with anyio.create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(look, f"{number}.png")
        with anyio.fail_after(10):
            assert await anyio.to_thread.run_sync(begun.acquire)
            await store.read("one", "0.png")
        goes_on.set()
    assert len(seen) == 100 and None not in seen


async def test_a_picture_that_is_dropped_while_it_is_looked_at_is_none(store: ArtifactStore, tmp_path: Path) -> None:
    await store.put(Source("one"), "a.png", png(3, 2))
    for file in (tmp_path / "store").iterdir():
        file.unlink()
    assert await store.picture("one", "a.png") is None


async def test_the_number_of_empty_files_is_limited_too(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "store", load_profile().artifacts.model_copy(update={"store_files": 3}))
    for number in range(10):
        await store.put(Source("one"), str(number), b"")
    assert [artifact.name for artifact in store.of_session("one")] == ["7", "8", "9"]
    assert store.statistics() == StoreStatistics(artifacts=3, size=0)
    assert len([*(tmp_path / "store").iterdir()]) == 3


async def test_artifacts_belong_to_the_owner_of_their_session_as_long_as_there_are_any(store: ArtifactStore) -> None:
    await store.put(Source("one", TOKEN), "a", b"x")
    await store.put(Source("two"), "a", b"x")
    assert (store.owner("one"), store.owner("two"), store.owner("three")) == (TOKEN, ANONYMOUS, None)
    await store.clear("one")
    assert store.owner("one") is None
