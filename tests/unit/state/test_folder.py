"""A folder of saved sessions, in what differs from other stores: its files, locks and disks; `test_stores.py` has the rest."""

import errno
import os
import stat
import threading
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.base.errors import StoreFailed
from llm_sandbox_mcp.state import folder as module
from llm_sandbox_mcp.state.folder import FolderStore
from tests.disks import fill, small_disk

from .test_stores import get, put

pytestmark = pytest.mark.anyio


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "saved" / "sessions")


async def entries(store: FolderStore) -> list[tuple[str, int]]:
    return [(entry.name, entry.size) for entry in await store.entries("me")]


def parts(folder: Path) -> Sequence[str]:
    return [path.name for path in folder.rglob("*.part")]


async def test_only_this_user_can_read_what_is_there(store: FolderStore, tmp_path: Path) -> None:
    await put(store, b"content")
    for path in (tmp_path / "saved").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


async def test_one_that_is_being_read_stays_the_same_when_another_takes_its_place(store: FolderStore) -> None:
    await put(store, b"old")
    async with store.open("me", "geo") as source:
        await put(store, b"newer")
        assert source is not None
        assert await source.read(0, 10) == b"old"
    assert await get(store) == b"newer"


async def test_one_that_somebody_reads_makes_no_room_but_can_be_deleted(store: FolderStore) -> None:
    await put(store, b"content")
    async with store.open("me", "geo") as source:
        assert source is not None
        assert not await store.remove("me", "geo", source.tag)
        assert await store.remove("me", "geo")
        assert await source.read(0, 10) == b"content"
    assert await get(store) is None
    assert not await store.remove("me", "geo")


async def test_what_is_no_file_is_no_object(store: FolderStore, tmp_path: Path) -> None:
    await put(store, b"content")
    place = tmp_path / "saved" / "sessions" / "me"
    os.mkfifo(place / "fifo.state")
    (place / "folder.state").mkdir()
    assert await entries(store) == [("geo", 7)]
    assert await get(store, name="fifo") is None
    assert await get(store, name="folder") is None


async def test_what_a_killed_server_left_is_removed_in_time(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(store, b"content")
    left = tmp_path / "saved" / "sessions" / "me" / "0123.part"
    left.write_bytes(b"half")
    assert await entries(store) == [("geo", 7)]
    assert left.exists()
    os.utime(left, (0, 0))
    assert await entries(store) == [("geo", 7)]
    assert not left.exists()


async def test_a_full_disk_is_the_callers_to_know_and_keeps_the_old_one(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "1m") as disk:
        store = FolderStore(disk / "sessions")
        await put(store, b"old")
        filler = fill(disk)
        with pytest.raises(StoreFailed, match="No space left on device; delete saved sessions"):
            await put(store, bytes(10_000))
        filler.unlink()
        assert await get(store) == b"old"
        assert parts(disk) == []


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES, errno.EIO])
async def test_a_folder_that_cannot_be_used_is_named(
    store: FolderStore, tmp_path: Path, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "open", refuse)
    for work in (put(store, b""), get(store)):
        with pytest.raises(StoreFailed, match=f"{tmp_path}.* cannot be used: {os.strerror(error)}"):
            await work


async def test_a_folder_that_is_gone_is_made_again(store: FolderStore, tmp_path: Path) -> None:
    await put(store, b"old")
    (tmp_path / "saved").rename(tmp_path / "elsewhere")
    assert await store.entries("me") == []
    assert await get(store) is None
    await put(store, b"new")
    assert await get(store) == b"new"


async def until(event: threading.Event) -> None:
    assert await anyio.to_thread.run_sync(event.wait, 10)


class Stuck:
    """A disk that does not answer until it is let go."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.answer = threading.Event()
        self.answered = threading.Event()

    def write(self, number: int, data: memoryview) -> int:
        self.asked.set()
        assert self.answer.wait(10)
        written = os.pwrite(number, data, 0)
        self.answered.set()
        return written

    async def let_go(self) -> None:
        self.answer.set()
        await until(self.answered)


async def test_a_disk_that_does_not_answer_ends_the_call_and_never_the_server(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = Stuck()
    monkeypatch.setattr(module, "_PATIENCE", 0.1)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", stuck.write)
        with pytest.raises(StoreFailed, match="does not answer"):
            await put(store, b"content")
        assert await store.entries("me") == []  # others still get their answers
    await stuck.let_go()
    assert parts(tmp_path) == []
    await put(store, b"content")


async def test_a_caller_that_leaves_while_the_disk_is_stuck_leaves_nothing(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = Stuck()
    monkeypatch.setattr(os, "write", stuck.write)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(put, store, b"content")
        await until(stuck.asked)
        tasks.cancel_scope.cancel()
    await stuck.let_go()
    assert parts(tmp_path) == []
    assert await get(store) is None


async def test_a_file_that_is_made_after_its_caller_has_left_does_not_stay(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(store, b"old")
    asked, answer, made = threading.Event(), threading.Event(), threading.Event()
    begin, closed = os.open, module._File.close

    def slow(path: Path, *rest: int) -> int:
        if path.suffix == ".part":
            asked.set()
            assert answer.wait(10)
        return begin(path, *rest)

    def close(file: module._File) -> None:
        closed(file)
        made.set()

    monkeypatch.setattr(os, "open", slow)
    monkeypatch.setattr(module._File, "close", close)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(put, store, b"new")
        await until(asked)
        tasks.cancel_scope.cancel()
    answer.set()
    await until(made)
    assert parts(tmp_path) == []
    assert await get(store) == b"old"
