"""The folders of a sandbox, read from outside: work that code can make slow is done outside of the event loop."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.backends.scanning import Folders
from tests.unit.policies import POLICY

pytestmark = pytest.mark.anyio

LARGE = 1 << 20
POLICY_OF_FILES = POLICY.model_copy(update={"disk": 8 * LARGE, "file_size": LARGE})


@contextmanager
def calls_in_this_thread() -> Iterator[list[str]]:
    """Records the calls of `close` and `scandir` that this thread makes in the `with` block."""
    done: list[str] = []
    loop = threading.get_ident()

    def watched(name: str, call: Callable[..., object], *arguments: object) -> object:
        if threading.get_ident() == loop:
            done.append(name)
        return call(*arguments)

    with pytest.MonkeyPatch.context() as patched:
        for name in ("close", "scandir"):
            patched.setattr(os, name, partial(watched, name, getattr(os, name)))
        yield done


def opened(*places: Path) -> Folders:
    descriptors = [os.open(place, os.O_RDONLY | os.O_DIRECTORY) for place in places]
    return Folders(descriptors, anyio.CapacityLimiter(1))


@pytest.mark.parametrize("at_once", [0, 3, 100])
async def test_files_are_listed_and_folders_closed(tmp_path: Path, at_once: int) -> None:
    (tmp_path / "in").mkdir()
    for name in ("one", "in/two", ".hidden"):
        (tmp_path / name).write_text("x")
    folders = opened(tmp_path)
    with calls_in_this_thread() as done:
        assert set(await folders.list_files(at_once=at_once)) == {"one", "in/two"}
    assert bool(done) is bool(at_once)
    with calls_in_this_thread() as done:
        await folders.close()
    assert not done
    assert await folders.list_files(at_once=at_once) == {}
    await folders.close()


@pytest.mark.parametrize("at_once", [0, 100])
async def test_many_folders_are_read_in_other_threads(tmp_path: Path, at_once: int) -> None:
    for number in range(1000):
        (tmp_path / str(number)).mkdir()
        (tmp_path / f"{number}/file").touch()
    folders = opened(tmp_path)
    with calls_in_this_thread() as done:
        assert len(await folders.list_files(at_once=at_once)) == 1000
        await folders.close()
    assert done.count("scandir") <= at_once


@pytest.mark.parametrize(("size", "large"), [(LARGE, True), (LARGE - 1, False)])
async def test_a_file_of_the_largest_allowed_size_is_found_in_other_threads(
    tmp_path: Path, size: int, large: bool
) -> None:
    places = [tmp_path / name for name in ("first", "second")]
    for place in places:
        place.mkdir()
    (places[1] / ".file").touch()
    os.truncate(places[1] / ".file", size)
    folders = opened(*places)
    with calls_in_this_thread() as done:
        assert (await folders.fullness(POLICY_OF_FILES, thorough=True)).large == large
        assert not (await folders.fullness(POLICY_OF_FILES, thorough=False)).large
        await folders.close()
    assert not done


async def test_a_listing_goes_on_while_the_folders_are_closed(tmp_path: Path) -> None:
    for number in range(2000):
        (tmp_path / str(number)).touch()
    folders = opened(tmp_path)
    found: list[int] = []

    async def list_slowly() -> None:
        found.append(len(await folders.list_files()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(list_slowly)
        await anyio.lowlevel.checkpoint()
        await folders.close()
        # If the listing still used the number of the closed descriptor, it would now read this folder.
        other = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    os.close(other)
    assert found == [2000]


async def test_a_call_that_is_cancelled_before_it_begins_leaves_nothing_open(tmp_path: Path) -> None:
    folders = opened(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await folders.list_files()
    assert len(os.listdir("/proc/self/fd")) == before
    with anyio.CancelScope() as scope:
        scope.cancel()
        await folders.close()
    assert len(os.listdir("/proc/self/fd")) == before - 1


async def test_what_code_made_for_somebody_is_found_outside_of_the_working_directory(tmp_path: Path) -> None:
    work, home, tmp = places = [tmp_path / name for name in ("sandbox", "home", "tmp")]
    for place in (*places, home / "figures", home / "libraries/python/lib", tmp / "out", tmp / "tmpab_12xyz"):
        place.mkdir(parents=True)
    folders = opened(*places)
    assert await folders.new_outside() == []
    for made in (
        work / "a.png",
        home / "figures/1.png",
        home / "libraries/python/b.html",
        tmp / "c.log",
        home / "h.json",
        tmp / ".d.png",
    ):
        made.touch()
    for made in (
        tmp / "tmpab_12xyz/e.png",
        tmp / "tmpabcd1234.csv",
        tmp / "tmp.AbCdEfGhIj.pdf",
        tmp / "out.png",
        tmp / "i.json",
    ):
        made.touch()
    os.symlink("/etc/passwd", tmp / "link.csv")
    (tmp / "out/F.PNG").touch()
    (home / "g.xlsx").touch()
    assert sorted(await folders.new_outside()) == ["/home/g.xlsx", "/tmp/i.json", "/tmp/out.png", "/tmp/out/F.PNG"]
    assert await folders.new_outside() == []
    (tmp / "out.png").write_text("changed")
    assert await folders.new_outside() == ["/tmp/out.png"]
    await folders.close()
    assert await folders.new_outside() == []


async def test_few_of_many_files_outside_are_read_and_in_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sandbox", "home", "tmp"):
        (tmp_path / name).mkdir()
    for number in range(3000):
        (tmp_path / f"tmp/{number}.png").touch()
    folders = opened(*(tmp_path / name for name in ("sandbox", "home", "tmp")))
    now = time.time_ns() + 10**9
    monkeypatch.setattr(time, "time_ns", lambda: now)
    found = await folders.new_outside()
    assert len(found) == 1000
    for path in found[:10]:
        (tmp_path / path.removeprefix("/")).unlink()
    assert await folders.new_outside() == []  # others were read, but they are not new
    await folders.close()
