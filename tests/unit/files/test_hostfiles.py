"""Files of this machine: only below open folders, whatever others who can write there do at the same time."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from llm_sandbox_mcp.errors import BadHostPath
from llm_sandbox_mcp.files.hostfiles import open_source, open_target
from llm_sandbox_mcp.open_folders import OpenFolder
from tests.effort import tries

pytestmark = pytest.mark.anyio

TRIES = tries(1000)


async def read(path: str, root: Path) -> bytes:
    async with open_source(path, [OpenFolder(str(root))]) as (_, content):
        return b"".join([portion async for portion in content])


async def write(path: str, root: Path) -> None:
    async with open_target(path, [OpenFolder(str(root), writable=True)]) as target:
        await target.write(b"new")


@contextmanager
def swapping(folder: Path, outside: Path) -> Iterator[None]:
    """Replaces a folder by a link and puts the folder back, again and again."""
    over = threading.Event()
    away = folder.with_name("away")

    def swap() -> None:
        while not over.is_set():
            folder.rename(away)
            folder.symlink_to(outside)
            folder.unlink()
            away.rename(folder)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("secret")
    return tmp_path / "outside"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root/folder").mkdir(parents=True)
    (tmp_path / "root/folder/file").write_text("content")
    return tmp_path / "root"


async def test_a_folder_that_becomes_a_link_leads_nowhere(root: Path, outside: Path) -> None:
    found = set()
    with swapping(root / "folder", outside):
        for _ in range(TRIES):
            with suppress(BadHostPath):
                found.add(await read(f"{root}/folder/file", root))
            with suppress(BadHostPath):
                await write(f"{root}/folder/new", root)
    assert found == {b"content"}
    assert os.listdir(outside) == ["file"]
    assert (root / "folder/new").read_bytes() == b"new"


async def test_a_link_that_stays_below_the_root_is_followed(root: Path) -> None:
    (root / "link").symlink_to("folder")
    (root.parent / "other").symlink_to(root)
    assert await read(f"{root}/link/file", root) == b"content"
    assert await read(f"{root.parent}/other/link/file", root.parent / "other") == b"content"
    await write(f"{root}/link/new", root)
    assert (root / "folder/new").read_bytes() == b"new"


@pytest.mark.parametrize("name", [".bashrc", ".git/hooks/pre-commit", "folder/.profile", "link/pre-commit"])
async def test_a_hidden_file_is_not_written(root: Path, name: str) -> None:
    (root / ".git/hooks").mkdir(parents=True)
    (root / "link").symlink_to(".git/hooks")
    with pytest.raises(BadHostPath, match="is hidden; use a file and folders whose names do not begin with a dot"):
        await write(f"{root}/{name}", root)
    assert not (root / name).exists()


async def test_a_hidden_file_can_be_read(root: Path) -> None:
    (root / ".settings").write_text("own")
    assert await read(f"{root}/.settings", root) == b"own"


@pytest.mark.parametrize("name", ["folder/\ud800", "\udcff/file", "folder/" + "x" * 300, "x" * 5000, "a/../../file"])
async def test_an_impossible_path_is_refused(root: Path, name: str) -> None:
    for use in (read, write):
        with pytest.raises(BadHostPath, match="on this machine"):
            await use(f"{root}/{name}", root)


async def test_a_link_that_changed_before_it_was_read_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "link").symlink_to("folder")
    monkeypatch.setattr(os, "readlink", _gone)
    # Since Python 3.13, resolving leaves such a link as it is, and then it is not followed.
    with pytest.raises(BadHostPath, match=r"on this machine cannot be (resolved|read: Not a directory)"):
        await read(f"{root}/link/file", root)


def _gone(path: str) -> str:
    """Fails as the kernel does if a link became a file after it was checked; no test can hit this moment."""
    raise OSError(22, "Invalid argument")


async def test_a_failed_write_leaves_nothing(root: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(RuntimeError):
        async with open_target(f"{root}/folder/new", [OpenFolder(str(root), writable=True)]):
            raise RuntimeError
    assert os.listdir(root / "folder") == ["file"]
    (root / "folder/taken").mkdir()
    with pytest.raises(BadHostPath, match="is a link, a pipe, a device or a folder, and is not replaced"):
        await write(f"{root}/folder/taken", root)
    assert sorted(os.listdir(root / "folder")) == ["file", "taken"]
    assert set(os.listdir("/proc/self/fd")) == before
