"""What is told of the lines that a package manager prints: packages choose them, and can print without end."""

import anyio
import anyio.lowlevel
import pytest

from llm_sandbox_mcp.libraries.installing import Lines

pytestmark = pytest.mark.anyio


async def told(*parts: bytes) -> list[str]:
    """What is told of one output that arrives in these parts."""
    lines: list[str] = []

    async def tell(line: str) -> None:
        lines.append(line)

    take = Lines("uv", tell).stream()
    for part in parts:
        await take(part)
    return lines


async def test_whole_lines_are_told_with_the_name_of_the_package_manager_in_front() -> None:
    assert await told(b"Resolved 2\nDown", b"loading\r", b"\n\n  \ndone") == ["uv: Resolved 2", "uv: Downloading"]


async def test_no_line_moves_the_cursor_or_looks_like_one_of_the_server() -> None:
    assert await told(b"\x1b[2Jstatus: ok\xff\n") == ["uv: \\x1b[2Jstatus: ok\ufffd"]


async def test_a_long_line_is_told_in_part_and_only_so_many_lines_are() -> None:
    assert await told(b"x" * 600) == ["uv: " + "x" * 500]
    assert len(await told(*[b"a\nb\n"] * 1000)) == 200


async def test_both_outputs_count_and_their_lines_stay_apart() -> None:
    lines: list[str] = []

    async def tell(line: str) -> None:
        await anyio.lowlevel.checkpoint()
        lines.append(line)

    both = Lines("uv", tell)

    async def give(half: bytes) -> None:
        take = both.stream()
        for part in (half, b"line\n" * 500, b"line\n" * 500):
            await take(part)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(give, b"a")
        tasks.start_soon(give, b"b")
    assert [line.removeprefix("uv: ") for line in lines] == [*("aline", "bline"), *["line"] * 198]


async def test_after_an_error_of_who_listens_nothing_more_is_told() -> None:
    asked = 0

    async def tell(line: str) -> None:
        nonlocal asked
        asked += 1
        raise ValueError(line)

    lines = Lines("uv", tell)
    await lines.stream()(b"one\ntwo\n")
    assert (asked, str(lines.error)) == (1, "uv: one")
