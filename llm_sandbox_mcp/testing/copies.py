"""Copying files into and out of a sandbox."""

import io
import tarfile
from collections.abc import AsyncIterator

import anyio
import pytest

from llm_sandbox_mcp.backends import copying
from llm_sandbox_mcp.backends.archive import Member
from llm_sandbox_mcp.backends.base import Sandbox
from llm_sandbox_mcp.backends.layout import PATH
from llm_sandbox_mcp.base.errors import BadPath, UnknownFile

pytestmark = pytest.mark.anyio

ENV = {"PATH": PATH}


async def put(sandbox: Sandbox, path: str, data: bytes) -> None:
    async def content() -> AsyncIterator[bytes]:
        for at in range(0, len(data), 1000):
            yield data[at : at + 1000]

    with anyio.fail_after(30):
        await copying.copy_in(sandbox, path, len(data), content)


async def get(sandbox: Sandbox, *names: str, limit: int = 1 << 20) -> dict[str, Member]:
    found: dict[str, Member] = {}

    async def take(member: Member) -> None:
        found[member.name] = member

    with anyio.fail_after(30):
        await copying.copy_out(sandbox, "/sandbox", names, limit, take)
    return found


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 10_240, 1_000_000])
async def test_bytes_come_back_as_they_went_in(sandbox: Sandbox, size: int) -> None:
    data = (bytes(range(256)) * (size // 256 + 1))[:size]
    await put(sandbox, "file", data)
    found = await get(sandbox, "file")
    assert (found["file"].size, bytes(found["file"].content)) == (size, data)


@pytest.mark.parametrize("name", ["a b", "é" * 60, "x" * 255, "d/" * 50 + "deep", "-n", "a\nb", "*", "\\n", "'"])
async def test_any_name_works_and_its_folders_are_made(sandbox: Sandbox, name: str) -> None:
    await put(sandbox, name, b"x")
    assert set(await get(sandbox, name)) == {name}


async def test_an_executable_file_can_be_run(sandbox: Sandbox) -> None:
    text = b"#!/bin/sh\necho ran\n"

    async def content() -> AsyncIterator[bytes]:
        yield text

    with anyio.fail_after(30):
        await copying.copy_in(sandbox, "deep/script", len(text), content, executable=True)
        assert (await sandbox.run(["deep/script"], ENV)).stdout == b"ran\n"


async def test_a_folder_is_made_and_kept(sandbox: Sandbox) -> None:
    with anyio.fail_after(30):
        await copying.make_folder(sandbox, "-a/b c")
        await put(sandbox, "-a/b c/file", b"x")
        await copying.make_folder(sandbox, "-a/b c")
        assert set(await get(sandbox, "-a/b c/file")) == {"-a/b c/file"}
        with pytest.raises(BadPath, match=r"'-a/b c/file' cannot be written: .*exists"):
            await copying.make_folder(sandbox, "-a/b c/file")


async def test_a_whole_folder_is_packed_as_an_archive(sandbox: Sandbox) -> None:
    data = bytes(range(256)) * 40_000
    with anyio.fail_after(30):
        await put(sandbox, "-d/deep/file", data)
        await copying.make_folder(sandbox, "-d/empty")
        with tarfile.open(fileobj=io.BytesIO(await copying.pack(sandbox, "/sandbox/-d"))) as archive:
            assert sorted(archive.getnames()) == ["-d", "-d/deep", "-d/deep/file", "-d/empty"]
            file = archive.extractfile("-d/deep/file")
            assert file is not None and file.read() == data


async def test_a_path_that_cannot_be_packed_is_an_error_with_the_reason(sandbox: Sandbox) -> None:
    with anyio.fail_after(30):
        for path in ("/sandbox/none", "/sandbox/none/deeper"):
            with pytest.raises(UnknownFile, match=f"'{path}' cannot be read"):
                await copying.pack(sandbox, path)
        await sandbox.run(["truncate", "-s", "16M", "a", "b", "c"], ENV)
        with pytest.raises(BadPath, match=r"'/sandbox' has more than 32MiB, twice limits\.disk of the profile"):
            await copying.pack(sandbox, "/sandbox")


async def test_a_file_is_overwritten_completely(sandbox: Sandbox) -> None:
    await put(sandbox, "file", b"a longer text")
    await put(sandbox, "file", b"short")
    assert bytes((await get(sandbox, "file"))["file"].content) == b"short"


async def test_other_files_of_a_folder_stay(sandbox: Sandbox) -> None:
    await put(sandbox, "folder/one", b"1")
    await put(sandbox, "folder/two", b"2")
    assert set(await get(sandbox, "folder/one", "folder/two")) == {"folder/one", "folder/two"}


async def test_files_that_are_not_regular_are_left_out(sandbox: Sandbox) -> None:
    await put(sandbox, "file", b"x")
    await sandbox.run(["sh", "-c", "ln -s file link; mkfifo fifo; mkdir folder; ln -s /etc/passwd out"], ENV)
    assert set(await get(sandbox, "missing", "link", "fifo", "folder", "out", "file")) == {"file"}


async def test_a_file_over_the_limit_comes_without_its_content_and_others_are_complete(sandbox: Sandbox) -> None:
    for name, size in (("a", 10), ("large", 1001), ("b", 1000)):
        await put(sandbox, name, b"x" * size)
    found = await get(sandbox, "a", "large", "b", limit=1000)
    assert {name: (member.size, len(member.content)) for name, member in found.items()} == {
        "a": (10, 10),
        "large": (1001, 0),
        "b": (1000, 1000),
    }


async def test_what_does_not_fit_is_an_error_that_says_why_and_leaves_nothing(sandbox: Sandbox) -> None:
    with pytest.raises(BadPath, match=r"'file' .*: the disk limit of 16MiB is reached"):
        await put(sandbox, "file", bytes((16 << 20) + 1))
    assert await get(sandbox, "file") == {}


async def test_a_copy_below_a_file_is_refused_or_replaces_the_file(sandbox: Sandbox) -> None:
    await put(sandbox, "file", b"x")
    try:
        await put(sandbox, "file/inside", b"y")
    except BadPath as error:
        assert "file" in str(error)  # noqa: PT017 - both results are allowed
