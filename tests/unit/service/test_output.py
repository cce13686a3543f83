"""Output between two looks at a run: nothing is lost below the limit, and beyond it the end is kept.

Whole outputs are files of the sandbox, and the oldest of them make room for others.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.backends.layout import WORKDIR
from llm_sandbox_mcp.base.results import Output
from llm_sandbox_mcp.service.output import NewOutput, WholeOutputs
from tests.memory.backend import MemoryBackend, MemoryProcess, MemorySandbox
from tests.unit.policies import POLICY


@given(st.lists(st.text(st.characters(exclude_characters="\r")), max_size=20), st.integers(1, 30))
def test_the_end_is_kept_and_the_rest_is_counted(parts: list[str], limit: int) -> None:
    new = NewOutput(limit)
    for part in parts:
        new.add(part)
    whole = "".join(parts)
    taken = new.take()
    assert taken.text == whole[-limit:]
    assert taken.omitted == len(whole[:-limit].encode(errors="replace"))
    assert new.take().text == ""


def test_a_progress_bar_is_one_line_and_leaves_room_for_what_came_before() -> None:
    new = NewOutput(100)
    for part in ("loading\n", *(f"\r{percent:3} %" for percent in range(50))):
        new.add(part)
    assert new.take() == Output("loading\n 49 %")
    for part in ("\r 5", "0 %", "\r\n", "loaded\r", "\n"):
        new.add(part)
    assert new.take() == Output(" 50 %\nloaded\n")


def test_what_is_dropped_of_a_long_progress_bar_is_counted() -> None:
    new = NewOutput(100)
    new.add("loading\n")
    for percent in range(100):
        new.add(f"\r{percent:3} %")
    assert new.take() == Output(" 99 %", len("loading\n") + 600 - 400)


@asynccontextmanager
async def with_files(disk: int) -> AsyncIterator[tuple[MemorySandbox, list[str]]]:
    """A sandbox with a disk of this size, and the names of its files."""
    names: list[str] = []

    async def written(process: MemoryProcess) -> int:
        with suppress(anyio.EndOfStream):
            while True:
                await process.receive()
        names.append(process.argv[-1])
        return 0

    async def deleted(process: MemoryProcess) -> int:
        for path in process.argv[3:]:
            names.remove(path.removeprefix(f"{WORKDIR}/"))
        return 0

    engine = MemoryBackend({"sh": written, "rm": deleted})
    async with engine.sandbox(POLICY.model_copy(update={"disk": disk, "file_size": disk})):
        yield engine.live["memory-1"], names


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("size", "left"),
    [(20, ["a", "b", "c", "d"]), (21, ["b", "c", "d"]), (40, ["b", "c", "d"]), (41, ["c", "d"]), (100, ["d"])],
)
async def test_so_many_of_the_oldest_whole_outputs_make_room_as_the_next_one_needs(size: int, left: list[str]) -> None:
    outputs = WholeOutputs()
    async with with_files(disk=800) as (sandbox, names):
        await outputs.leave(sandbox, {"a": b"x" * 20, "b": b"x" * 30, "c": b"x" * 30})
        (note,) = await outputs.leave(sandbox, {"d": b"x" * size})
        assert (note.code, names) == ("whole_output", left)
        # Those that were deleted count no longer.
        await outputs.leave(sandbox, {"e": b"x" * 100})
        assert names == ["e"]


@pytest.mark.anyio
async def test_an_output_over_an_eighth_of_the_disk_is_not_left_and_takes_no_room() -> None:
    outputs = WholeOutputs()
    async with with_files(disk=800) as (sandbox, names):
        await outputs.leave(sandbox, {"a": b"x" * 100})
        (note,) = await outputs.leave(sandbox, {"b": b"x" * 101})
        assert (note.code, names) == ("output_not_left", ["a"])
