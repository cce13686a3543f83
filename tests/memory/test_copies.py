"""What becomes of copies by what the tools in a sandbox print and how they end; the tools' own work is tested in one."""

import io
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
import pytest

from llm_sandbox_mcp.backends import copying
from llm_sandbox_mcp.backends.archive import END, Member, header, padding
from llm_sandbox_mcp.backends.base import Fullness
from llm_sandbox_mcp.base.errors import BadPath, EngineUnavailable, Unavailable, UnknownFile
from tests.memory.backend import MemoryBackend, MemoryProcess, MemorySandbox, true
from tests.unit.policies import POLICY

pytestmark = pytest.mark.anyio

DISK = 1024
Tool = Callable[[MemoryProcess], Awaitable[int]]


@asynccontextmanager
async def opened(**tools: Tool) -> AsyncIterator[MemorySandbox]:
    engine = MemoryBackend({"rm": true, **tools})
    async with engine.sandbox(POLICY.model_copy(update={"disk": DISK})):
        yield engine.live["memory-1"]


def started(sandbox: MemorySandbox) -> list[str]:
    return [process.argv[0] for process in sandbox.processes]


async def given(process: MemoryProcess) -> bytes:
    """All the input of a tool."""
    data = b""
    with suppress(anyio.EndOfStream):
        while True:
            data += await process.receive()
    return data


def tool(code: int = 0, *output: bytes, errors: bytes = b"", then: int | None = None) -> Tool:
    """A tool that prints this and ends; from its second start on, it ends with the code `then`."""
    codes = [code] if then is None else [code, then]

    async def program(process: MemoryProcess) -> int:
        await given(process)
        for piece in output:
            await process.print(piece)
        await process.print(errors, "stderr")
        return codes.pop(0) if len(codes) > 1 else codes[0]

    return program


def member(name: str, size: int) -> bytes:
    return header(name, size) + b"x" * size + padding(size)


@pytest.mark.parametrize("code", [0, 1], ids=["complete", "a file changed meanwhile"])
async def test_an_archive_has_twice_as_much_as_the_disk_at_most(code: int) -> None:
    async with opened(tar=tool(code, b"x" * DISK, b"y" * DISK)) as sandbox:
        assert await copying.pack(sandbox, "/sandbox/a") == b"x" * DISK + b"y" * DISK
    async with opened(tar=tool(code, b"x" * DISK, b"y" * DISK, b"z")) as sandbox:
        with pytest.raises(BadPath, match=r"'/sandbox/a' has more than 2KiB, twice limits\.disk of the profile; copy"):
            await copying.pack(sandbox, "/sandbox/a")


@pytest.mark.parametrize(
    ("errors", "kind", "reason"),
    [
        (b"tar: a: Cannot stat: No such file or directory\n", UnknownFile, "No such file or directory"),
        (b"tar: Exiting with failure status due to previous errors\n\ntar: a: Permission denied\n", BadPath, "denied"),
        (b"tar: " + b"x" * 300 + b"end\n", BadPath, f"cannot be read: {'x' * 197}end;"),
        (b"", BadPath, "no reason given"),
        (b" \n", BadPath, "no reason given"),
    ],
)
async def test_what_cannot_be_packed_is_refused_with_the_reason(
    errors: bytes, kind: type[Exception], reason: str
) -> None:
    async with opened(tar=tool(2, b"part", errors=errors)) as sandbox:
        with pytest.raises(kind, match=reason):
            await copying.pack(sandbox, "/sandbox/a")
        assert started(sandbox) == ["tar"]


@pytest.mark.parametrize(("code", "starts"), [(128, 1), (129, 2)])
async def test_only_a_tool_that_a_signal_ended_is_started_again(code: int, starts: int) -> None:
    async with opened(tar=tool(code, b"archive", errors=b"why\n", then=0)) as sandbox:
        with suppress(BadPath):
            assert await copying.pack(sandbox, "/sandbox/a") == b"archive"
        assert started(sandbox) == ["tar"] * starts


class Tar:
    """A `tar` that packs what it has of what is asked for; each of its starts can end early, with an exit code."""

    def __init__(self, sizes: Mapping[str, int], ends: Sequence[tuple[int, int]] = ()) -> None:
        self.asked: list[list[str]] = []
        self._sizes = sizes
        self._ends = [*ends]

    async def __call__(self, process: MemoryProcess) -> int:
        names = (await given(process)).decode().split("\0")[:-1]
        self.asked.append(names)
        most, code = self._ends.pop(0) if self._ends else (len(names), 0)
        for name in names[:most]:
            if name in self._sizes:
                await process.print(member(name, self._sizes[name]))
        await process.print(END)
        return code


async def copied(sandbox: MemorySandbox, *names: str, limit: int) -> dict[str, tuple[int, int]]:
    """The size of each copied file, and the bytes of it that came."""
    found: dict[str, tuple[int, int]] = {}

    async def take(member: Member) -> None:
        found[member.name] = member.size, len(member.content)

    await copying.copy_out(sandbox, "/sandbox", names, limit, take)
    return found


async def test_a_file_over_the_limit_comes_without_content_and_those_behind_it_come_all_the_same() -> None:
    tar = Tar({"a": 1, "most": 100, "large": 101, "b": 2})
    async with opened(tar=tar) as sandbox:
        found = await copied(sandbox, "a", "most", "large", "gone", "b", limit=100)
    assert found == {"a": (1, 1), "most": (100, 100), "large": (101, 0), "b": (2, 2)}
    assert tar.asked == [["a", "most", "large", "gone", "b"], ["gone", "b"]]


async def test_a_large_file_that_nobody_asked_for_ends_the_copy() -> None:
    async with opened(tar=tool(0, member("a", 1), member("other", 101), member("b", 1))) as sandbox:
        assert await copied(sandbox, "a", "b", limit=100) == {"a": (1, 1), "other": (101, 0)}
        assert started(sandbox) == ["tar"]


async def test_no_more_than_twice_the_disk_is_read() -> None:
    pieces = [member("a", DISK), member("b", 0), member("c", 0), member("d", 0)]
    assert sum(map(len, pieces[:2])) == 2 * DISK
    async with opened(tar=tool(0, *pieces)) as sandbox:
        found = await copied(sandbox, "a", "b", "c", "d", limit=DISK)
        assert [*found] == ["a", "b", "c"]  # the last is what was too much
        assert started(sandbox) == ["tar"]


@pytest.mark.parametrize(
    ("ends", "asked", "found"),
    [
        ([(1, 2)], ["abc"], "a"),
        ([(1, 128)], ["abc"], "a"),
        ([(1, 137)], ["abc", "bc"], "abc"),
        ([(1, 137), (1, 137)], ["abc", "bc"], "ab"),
        ([(3, 137)], ["abc"], "abc"),
    ],
    ids=["fails", "fails with the last code", "killed once", "killed twice", "killed when all is there"],
)
async def test_a_copy_goes_on_where_a_signal_ended_it(
    ends: list[tuple[int, int]], asked: list[str], found: str
) -> None:
    tar = Tar(dict.fromkeys("abc", 1), ends)
    async with opened(tar=tar) as sandbox:
        assert [*await copied(sandbox, *"abc", limit=100)] == [*found]
    assert tar.asked == [[*names] for names in asked]


async def put(sandbox: MemorySandbox, data: bytes = b"#!/bin/sh\n", *, executable: bool = False) -> None:
    async def content() -> AsyncIterator[bytes]:
        yield data

    await copying.copy_in(sandbox, "new/run.sh", len(data), content, executable=executable)


@pytest.mark.parametrize(("executable", "mode"), [(False, 0o644), (True, 0o755)])
async def test_a_file_goes_in_with_its_folders_and_its_mode(executable: bool, mode: int) -> None:
    received: list[bytes] = []

    async def sh(process: MemoryProcess) -> int:
        received.append(await given(process))
        return 0

    async with opened(sh=sh) as sandbox:
        await put(sandbox, executable=executable)
        assert started(sandbox) == ["sh"]
    with tarfile.open(fileobj=io.BytesIO(received[0])) as archive:
        folder, file = archive.getmembers()
        assert (folder.name, file.name, file.size, file.mode) == ("new", "new/run.sh", 10, mode)


@pytest.mark.parametrize(
    ("full", "reason"),
    [(False, "cannot be written: it is a folder; choose another path"), (True, "the disk limit of 1KiB is reached")],
)
async def test_a_file_that_cannot_be_written_leaves_nothing(full: bool, reason: str) -> None:
    async with opened(sh=tool(1, errors=b"it is a folder\n"), mkdir=tool(1, errors=b"it is a folder\n")) as sandbox:
        sandbox.full = Fullness(disk=full)
        with pytest.raises(BadPath, match=reason):
            await put(sandbox)
        assert started(sandbox) == ["sh", "rm"]
        assert sandbox.processes[-1].argv[-1] == "/sandbox/new/run.sh"
        with pytest.raises(BadPath, match=reason):
            await copying.make_folder(sandbox, "new")
        assert await copying.is_full(sandbox) == full


@pytest.mark.parametrize(("seconds", "expected"), [(None, 30), (2.0, 2)])
async def test_a_copy_that_is_not_done_in_time_is_code_that_hinders_it_or_a_silent_engine(
    seconds: float | None, expected: float
) -> None:
    async with opened() as sandbox:
        start = anyio.current_time()
        with pytest.raises(Unavailable, match="looking was not done in time, as when processes of the code stop it"):
            async with copying.in_time(sandbox, "looking", seconds=seconds):
                await anyio.sleep_forever()
        assert anyio.current_time() - start == pytest.approx(expected, abs=0.1)
        sandbox.fall_silent()
        with pytest.raises(EngineUnavailable, match="memory does not answer; wait"):
            async with copying.in_time(sandbox, seconds=seconds):
                await anyio.sleep_forever()
