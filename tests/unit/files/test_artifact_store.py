"""What the store keeps, drops and tells, without any sandbox."""

from pathlib import Path

import pytest

from llm_sandbox_mcp.errors import UnknownArtifact
from llm_sandbox_mcp.files.artifacts import ArtifactStore
from llm_sandbox_mcp.profile import load_profile
from llm_sandbox_mcp.results import StoreStatistics

pytestmark = pytest.mark.anyio


@pytest.fixture
def told() -> list[tuple[str, tuple[str, ...]]]:
    return []


@pytest.fixture
def store(tmp_path: Path, told: list[tuple[str, tuple[str, ...]]]) -> ArtifactStore:
    limits = load_profile().artifacts.model_copy(update={"store": 10})
    made = ArtifactStore(tmp_path / "store", limits)
    made.listen(lambda session_id, names: told.append((session_id, names)))
    return made


async def test_what_makes_room_is_told_too(store: ArtifactStore, told: list[tuple[str, tuple[str, ...]]]) -> None:
    await store.put("one", "a", bytes(6))
    await store.put("two", "b", bytes(6))
    assert told == [("one", ("a",)), ("two", ("b",)), ("one", ("a",))]
    assert store.of_session("one") == ()


async def test_a_clear_drops_the_files_of_one_session_and_tells_once(
    store: ArtifactStore, told: list[tuple[str, tuple[str, ...]]], tmp_path: Path
) -> None:
    for session_id, name in (("one", "a"), ("one", "b"), ("two", "c")):
        await store.put(session_id, name, b"xy")
    told.clear()
    await store.clear("one")
    await store.clear("one")
    assert told == [("one", ("a", "b"))]
    assert [artifact.name for artifact in store.of_session("two")] == ["c"]
    assert len([*(tmp_path / "store").iterdir()]) == 1
    with pytest.raises(UnknownArtifact):
        await store.read("one", "a")


async def test_empty_files_have_a_bound_too(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "store", load_profile().artifacts.model_copy(update={"store_files": 3}))
    for number in range(10):
        await store.put("one", str(number), b"")
    assert [artifact.name for artifact in store.of_session("one")] == ["7", "8", "9"]
    assert store.statistics() == StoreStatistics(artifacts=3, size=0)
    assert len([*(tmp_path / "store").iterdir()]) == 3
