"""What a run leaves behind is copied out of its sandbox and kept; what is not kept is named."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.backends.archive import END, header, padding
from llm_sandbox_mcp.backends.layout import FIGURES
from llm_sandbox_mcp.base.results import Artifact
from llm_sandbox_mcp.files.artifacts import ArtifactStore
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.runs.protocol import Report
from llm_sandbox_mcp.runs.run import Outcome
from tests.memory.backend import MemoryBackend, MemoryProcess, MemorySandbox
from tests.memory.clock import JumpingLoop
from tests.unit.files.source import Source
from tests.unit.policies import POLICY

pytestmark = pytest.mark.anyio

LIMITS = {"files": 3, "file_size": 100, "store": 1000, "store_files": 5}


def tar(files: Mapping[str, int]) -> Callable[[MemoryProcess], Awaitable[int]]:
    """A `tar` that finds files of these sizes, and fails if one is missing."""

    async def program(process: MemoryProcess) -> int:
        asked = b""
        with suppress(anyio.EndOfStream):
            while True:
                asked += await process.receive()
        folder = "figures/" if FIGURES in process.argv else ""
        names = asked.decode().split("\0")[:-1]
        for name in names:
            if (size := files.get(folder + name)) is not None:
                await process.print(header(name, size) + b"x" * size + padding(size))
        await process.print(END)
        return 0 if {folder + name for name in names} <= {*files} else 2

    return program


def clock() -> JumpingLoop:
    """The clock of the test: files are written in threads, for which it waits."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, JumpingLoop)
    return loop


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "store", load_profile().artifacts.model_copy(update=LIMITS))


@pytest.fixture
def files() -> dict[str, int]:
    """What is in the sandbox."""
    return {}


@pytest.fixture
async def sandbox(files: dict[str, int]) -> AsyncIterator[MemorySandbox]:
    await clock().wait_for_threads()
    engine = MemoryBackend({"tar": tar(files)})
    async with engine.sandbox(POLICY.model_copy(update={"disk": 1 << 20})):
        yield engine.live["memory-1"]


def outcome(files: tuple[str, ...] = (), figures: tuple[str, ...] = (), omitted: int = 0) -> Outcome:
    report = Report(status="ok", exit_code=0, files=files, figures=figures, files_omitted=omitted)
    return Outcome("answered", report, True, None, True, b"", b"", 0, 1.0)


def sizes(artifacts: list[Artifact]) -> dict[str, int]:
    return {artifact.name: artifact.size for artifact in artifacts}


async def test_files_and_figures_of_a_run_are_kept_with_their_content(
    store: ArtifactStore, sandbox: MemorySandbox, files: dict[str, int]
) -> None:
    files |= {"a.txt": 5, "data/b.csv": 100, "figures/1.png": 7}
    kept, notes = await store.collect(Source("one"), sandbox, outcome(("a.txt", "data/b.csv"), ("1.png",)), {})
    assert (sizes(kept), notes) == ({"1.png": 7, "a.txt": 5, "data/b.csv": 100}, [])
    assert (await store.read("one", "a.txt"))[1] == b"x" * 5
    assert await store.collect(Source("one"), sandbox, outcome(figures=("1.png",)), {}) == ([kept[0]], [])


async def test_files_whose_names_a_runner_cannot_list_are_counted_for_themselves(
    store: ArtifactStore, sandbox: MemorySandbox, files: dict[str, int]
) -> None:
    files |= {"a": 1}
    kept, notes = await store.collect(Source("one"), sandbox, outcome(("a",), (), 2), {})
    assert [artifact.name for artifact in kept] == ["a"]
    assert notes == ["2 changed files were not kept: their names are not UTF-8, or very long; give them other names"]


async def test_of_too_many_files_figures_are_kept_first_and_the_rest_is_counted(
    store: ArtifactStore, sandbox: MemorySandbox, files: dict[str, int]
) -> None:
    names = tuple(f"{number:03}" for number in range(200))
    files |= {**dict.fromkeys(names, 1), **{f"figures/{number}.png": 1 for number in range(5)}}
    kept, notes = await store.collect(Source("one"), sandbox, outcome(names, ("0.png", "1.png"), 4), {})
    assert [artifact.name for artifact in kept] == ["0.png", "1.png", "000"]
    most = "at most 3 (artifacts.files in the profile) are kept"
    assert notes == [f"203 more files were changed and not kept; {most}; put them into one file"]
    kept, notes = await store.collect(Source("one"), sandbox, outcome(("a",), tuple(f"{n}.png" for n in range(5))), {})
    assert [artifact.name for artifact in kept] == ["0.png", "1.png", "2.png"]
    assert [note[:1] for note in notes] == ["3"]
    assert await store.collect(Source("one"), sandbox, outcome(omitted=1), {}) != ([], [])


async def test_a_file_that_is_too_large_or_missing_is_named_and_the_others_are_kept(
    store: ArtifactStore, sandbox: MemorySandbox, files: dict[str, int]
) -> None:
    files |= {"large": 101, "small": 100}
    kept, notes = await store.collect(Source("one"), sandbox, outcome(("gone", "large", "small")), {})
    assert sizes(kept) == {"small": 100}
    assert [note.partition("; ")[0] for note in notes] == [
        "large (101B) was not kept",
        "1 changed files could not be read: gone",
    ]
    assert "the limit is 100B (artifacts.file_size in the profile); " in notes[0]


@pytest.mark.parametrize("name", ["../a", "/a", "b/../a", "."])
async def test_a_name_that_leads_elsewhere_is_not_asked_for(
    store: ArtifactStore, sandbox: MemorySandbox, files: dict[str, int], name: str
) -> None:
    files[name] = 1
    assert await store.collect(Source("one"), sandbox, outcome((name,), (name,)), {}) == ([], [])
    assert not sandbox.processes


async def test_without_a_sandbox_only_long_output_is_kept(store: ArtifactStore) -> None:
    kept, notes = await store.collect(Source("one"), None, outcome(("a",), omitted=1), {"run-1-stdout.txt": b"x" * 9})
    assert (sizes(kept), notes) == ({"run-1-stdout.txt": 9}, [])
    assert await store.collect(Source("one"), None, outcome(("a",), omitted=1), {}) == ([], [])


async def test_of_a_run_without_a_report_only_long_output_is_kept(store: ArtifactStore, sandbox: MemorySandbox) -> None:
    exited = Outcome("exited", None, True, 1, False, b"", b"", 0, 1.0)
    kept, notes = await store.collect(Source("one"), sandbox, exited, {"run-1-stdout.txt": b"x" * 9})
    assert (sizes(kept), notes, sandbox.processes) == ({"run-1-stdout.txt": 9}, [], [])


async def test_what_was_kept_before_a_sandbox_ended_stays(
    store: ArtifactStore, sandbox: MemorySandbox, files: dict[str, int]
) -> None:
    await sandbox.kill()
    kept, notes = await store.collect(Source("one"), sandbox, outcome(("a",)), {"run-1-stdout.txt": b"x"})
    assert sizes(kept) == {"run-1-stdout.txt": 1}
    assert notes == ["some files were not kept: the sandbox has ended"]


async def test_files_that_make_room_are_counted_those_of_the_run_first(store: ArtifactStore) -> None:
    streams = {f"run-{number}-stdout.txt": bytes(300) for number in range(3)}
    assert (await store.collect(Source("one"), None, outcome(), streams))[1] == []
    replaced = await store.collect(Source("one"), None, outcome(), {"run-4-stdout.txt": bytes(300)})
    assert len(replaced[0]) == 1
    assert replaced[1][0].startswith("1 earlier artifacts of this session were dropped to make room; the store keeps")
    kept, notes = await store.collect(
        Source("one"), None, outcome(), {f"run-{number}-stderr.txt": bytes(300) for number in range(5)}
    )
    assert [artifact.name for artifact in kept] == ["run-2-stderr.txt", "run-3-stderr.txt", "run-4-stderr.txt"]
    [note] = notes
    assert note.startswith("2 files of this run were dropped to make room for others; the store keeps")
    assert " (artifacts.store_files and artifacts.store in the profile); " in note
