"""What code sees of folders that it works on copies of, and what is told; the copies are made with this machine's tools.

What happens while code runs is in `tests/conformance`.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from llm_sandbox_mcp.backends.base import Fullness, Process
from llm_sandbox_mcp.backends.layout import WORKDIR
from llm_sandbox_mcp.base.messages import Note
from llm_sandbox_mcp.base.open_folders import OpenFolder, View
from llm_sandbox_mcp.base.units import format_size
from llm_sandbox_mcp.files.beneath import hidden_name
from llm_sandbox_mcp.files.watching import WatchedFolders
from llm_sandbox_mcp.service.views import Views
from tests.disks import small_disk
from tests.outside_backend.plain_backend import Plain, PlainSandbox
from tests.unit.policies import POLICY

pytestmark = pytest.mark.anyio

DISK, FILES, FILE_SIZE = 2000, 20, 800


class Sides(PlainSandbox):
    """A sandbox that is a folder of this machine; it can be full."""

    full = False
    starts: Callable[[str], object] | None = None
    """Called with the name of each of our tools before it starts."""
    looks: Callable[[], object] | None = None
    """Called before the next list of files is made, once files went in or out."""
    _moved = False

    async def spawn(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str = WORKDIR, *, closes_input: bool = False
    ) -> Process:
        tool = "tar" if "tar -x" in " ".join(argv) else argv[0]
        self._moved = self._moved or tool == "tar"
        if self.starts is not None:
            self.starts(tool)
        return await super().spawn(argv, env, cwd, closes_input=closes_input)

    async def look(self, command: str, seconds: float) -> bytes:
        if self._moved and self.looks is not None:
            looks, self.looks = self.looks, None
            looks()
        self._moved = False
        return await super().look(command, seconds)

    async def fullness(self, *, thorough: bool) -> Fullness:
        return Fullness(disk=self.full)


class Folders:
    """Folders of an operator, and a sandbox whose code has copies of them."""

    def __init__(self, top: Path, watched: WatchedFolders, opened: Mapping[str, str]) -> None:
        self.opened = opened
        self.watched = watched
        self._top = top
        self.inside.mkdir()
        self.policy = POLICY.model_copy(update={"disk": DISK, "files": FILES, "file_size": FILE_SIZE})
        self.sandbox = Sides("sides", self.policy, {WORKDIR: self.inside}, Plain())
        self.shown = [
            View(str(self.inside / name), OpenFolder.parse(str(self.folder(name)) + end))
            for name, end in opened.items()
        ]
        self.views = Views(self.shown, watched)

    @property
    def inside(self) -> Path:
        return self._top / "inside"

    def folder(self, name: str = "notes") -> Path:
        folder = self._top / "host" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def seen(self, name: str = "notes") -> dict[str, int]:
        """The files of a copy, and their sizes."""
        place = self.inside / name
        return {str(file.relative_to(place)): file.stat().st_size for file in place.rglob("*") if file.is_file()}

    async def show(self) -> list[Note]:
        return await self.views.show(self.sandbox)

    async def save(self, *, whole: bool = True, last: bool = False) -> list[Note]:
        return await self.views.save(self.sandbox, whole=whole, last=last)


@pytest.fixture
def opened() -> dict[str, str]:
    """The folders, with how they are open."""
    return {"notes": ":rw"}


@pytest.fixture
def folders(tmp_path: Path, opened: dict[str, str]) -> Iterator[Folders]:
    with WatchedFolders() as watched:
        yield Folders(tmp_path, watched, opened)


def codes(notes: list[Note]) -> list[str]:
    return [note.code for note in notes]


@pytest.mark.parametrize("opened", [{"notes": ""}, {"notes": ":rw"}])
async def test_a_copy_has_half_of_the_disk_at_most_and_why_it_is_empty_is_told_once(folders: Folders) -> None:
    (folders.folder() / "a").write_bytes(bytes(DISK // 4))
    (folders.folder() / "b").write_bytes(bytes(DISK // 4 + 1))
    (told,) = await folders.show()
    assert (told.code, folders.seen()) == ("view_empty", {})
    assert f"it has more than the {DISK // 2}B or {FILES // 2} files that can be copied" in told.cause
    assert await folders.views.problem(folders.shown[0], folders.policy) in told.cause
    assert await folders.show() == []
    (folders.folder() / "b").write_bytes(bytes(DISK // 4))
    assert await folders.views.problem(folders.shown[0], folders.policy) == ""
    assert await folders.show() == []
    assert folders.seen() == {"a": DISK // 4, "b": DISK // 4}
    (folders.folder() / "b").write_bytes(bytes(DISK // 4 + 1))
    assert codes(await folders.show()) == ["view_stale"]
    assert folders.seen() == {"a": DISK // 4, "b": DISK // 4}


async def test_a_copy_has_half_of_the_files_at_most(folders: Folders) -> None:
    for number in range(FILES // 2):
        (folders.folder() / str(number)).touch()
    assert await folders.show() == []
    assert len(folders.seen()) == FILES // 2
    (folders.folder() / "more").touch()
    assert codes(await folders.show()) == ["view_stale"]


@pytest.mark.parametrize("opened", [{"notes": "", "more": "", "last": ""}])
async def test_copies_share_what_they_may_have(folders: Folders) -> None:
    (folders.folder("notes") / "a").write_bytes(bytes(300))
    (folders.folder("more") / "b").write_bytes(bytes(DISK // 2 - 299))
    (folders.folder("last") / "c").write_bytes(bytes(DISK // 2 - 300))
    (told,) = await folders.show()
    assert (told.code, told.facts["place"]) == ("view_empty", str(folders.inside / "more"))
    assert [folders.seen(name) for name in folders.opened] == [{"a": 300}, {}, {"c": DISK // 2 - 300}]


async def test_a_file_that_no_process_may_write_is_left_out_and_told_until_it_changes(folders: Folders) -> None:
    (folders.folder() / "most").write_bytes(bytes(100))
    (folders.folder() / "large").write_bytes(bytes(FILE_SIZE + 1))
    (told,) = await folders.show()
    assert (told.code, told.facts["names"]) == ("files_not_shown", ("large",))
    assert f"since they are larger than {FILE_SIZE}B: large" in told.cause
    assert folders.seen() == {"most": 100}
    assert await folders.show() == []
    (folders.folder() / "large").write_bytes(bytes(FILE_SIZE))
    assert await folders.show() == []
    assert folders.seen() == {"most": 100, "large": FILE_SIZE}


@pytest.mark.parametrize(("opened", "told"), [({"notes": ":rw"}, ["files_left_over"]), ({"notes": ""}, [])])
async def test_what_a_killed_server_left_in_a_folder_for_writing_is_told_once(
    folders: Folders, told: list[str]
) -> None:
    left = folders.folder() / hidden_name()
    left.touch()
    os.utime(left, (1, 1))
    assert codes(await folders.show()) == told
    assert await folders.show() == []


async def test_what_code_changes_is_saved_once_and_folders_and_files_that_it_got_are_no_changes(
    folders: Folders,
) -> None:
    (folders.folder() / "d").mkdir()
    (folders.folder() / "d" / "a").write_text("1")
    assert await folders.show() == []
    assert await folders.save() == []
    (folders.inside / "notes" / "d" / "a").write_text("2")
    (folders.inside / "notes" / "b").write_text("3")
    (saved,) = await folders.save()
    assert (saved.code, saved.facts["names"]) == ("results_saved", ("b", "d/a"))
    assert [(folders.folder() / name).read_text() for name in ("d/a", "b")] == ["2", "3"]
    assert await folders.save() == []
    assert await folders.show() == []
    (folders.folder() / "b").write_text("4")
    assert await folders.show() == []
    assert (folders.inside / "notes" / "b").read_text() == "4"


async def test_a_file_that_code_still_writes_while_it_is_saved_is_told_and_saved_again(folders: Folders) -> None:
    await folders.show()
    inside = folders.inside / "notes" / "a"
    inside.write_text("half")
    (folders.inside / "notes" / "b").write_text("whole")
    folders.sandbox.looks = lambda: inside.write_text("all of it")
    saved, torn = await folders.save()
    assert (saved.code, torn.code) == ("results_saved", "results_incomplete")
    assert "code was still writing them while they were saved: a;" in torn
    assert (folders.folder() / "a").read_text() == "half"
    (again,) = await folders.save()
    assert again.facts["names"] == ("a",)
    assert (folders.folder() / "a").read_text() == "all of it"


async def test_what_is_never_saved_is_told_once(folders: Folders) -> None:
    await folders.show()
    (folders.inside / "notes" / ".hidden").touch()
    (folders.inside / "notes" / "link").symlink_to("a")
    assert codes(await folders.save()) == ["hidden_files", "special_files"]
    assert await folders.save() == []
    (folders.inside / "notes" / "a").touch()
    assert codes(await folders.save()) == ["results_saved"]


@pytest.mark.parametrize("opened", [{"notes": ":rwd"}])
@pytest.mark.parametrize("whole", [True, False])
async def test_only_after_a_usual_end_a_changed_file_replaces_the_one_there_and_files_are_deleted(
    folders: Folders, whole: bool
) -> None:
    for name in ("changed", "gone"):
        (folders.folder() / name).write_text("1")
    await folders.show()
    (folders.inside / "notes" / "gone").unlink()
    (folders.inside / "notes" / "changed").write_text("2")
    notes = await folders.save(whole=whole)
    assert sorted(os.listdir(folders.folder())) == (["changed"] if whole else ["changed", "changed.from-code", "gone"])
    assert (folders.folder() / "changed").read_text() == ("2" if whole else "1")
    assert ("results_deleted" in codes(notes), "results_kept" in codes(notes)) == (whole, not whole)


@pytest.mark.parametrize("opened", [{"notes": ":rw", "read": ""}])
@pytest.mark.parametrize("ends", ["usually", "never", "unusually"])
async def test_before_the_session_ends_the_rest_is_saved_and_after_an_unusual_end_beside(
    folders: Folders, ends: str
) -> None:
    """A run of which nothing is saved was cancelled."""
    (folders.folder("notes") / "a").write_text("1")
    (folders.folder("read") / "b").write_text("1")
    await folders.show()
    if ends != "never":
        await folders.save(whole=ends == "usually")
    (folders.inside / "notes" / "a").write_text("2")
    (folders.inside / "read" / "b").write_text("2")
    await folders.views.save_rest(folders.sandbox)
    assert (folders.folder() / "a").read_text() == ("2" if ends == "usually" else "1")
    assert (folders.folder() / "a.from-code").exists() == (ends != "usually")
    assert (folders.folder("read") / "b").read_text() == "1"


async def test_what_a_cancelled_run_changed_is_saved_before_the_next_one(folders: Folders) -> None:
    (folders.folder() / "a").write_text("1")
    await folders.show()
    (folders.inside / "notes" / "a").write_text("2")
    assert codes(await folders.show()) == ["results_beside"]
    assert (folders.folder() / "a.from-code").read_text() == "2"


@pytest.mark.parametrize("opened", [{"notes": ":rw", "read": "", "more": ":rwd"}])
async def test_with_its_sandbox_only_changes_of_folders_for_writing_are_lost(folders: Folders) -> None:
    (lost,) = await folders.views.save(None, whole=True, last=True)
    assert lost.facts["places"] == tuple(str(folders.inside / name) for name in ("notes", "more"))
    assert folders.views.writable
    (read,) = (view for view in folders.shown if not view.folder.writable)
    only_read = Views([read], folders.watched)
    assert not only_read.writable
    assert await only_read.save(None, whole=True, last=True) == []


@pytest.mark.parametrize("opened", [{"notes": ""}, {"notes": ":rw"}])
@pytest.mark.parametrize("full", [True, False])
async def test_why_a_copy_could_not_be_written_is_told_once_and_nothing_half_stays(
    folders: Folders, full: bool
) -> None:
    """Code of the same user can make a folder where a file should go."""
    for name in ("a", "b", "half"):
        (folders.folder() / name).write_text("1")
    (folders.inside / "notes" / "b" / "own").mkdir(parents=True)
    folders.sandbox.full = full
    folders.sandbox.looks = lambda: (folders.inside / "notes" / "half").write_text("")
    (told,) = await folders.show()
    assert told.code == "view_stale"
    assert (f"the disk limit of {format_size(DISK)} is reached" in told.cause) == full
    assert ("Cannot open" in told.cause) == (not full)
    assert folders.seen() == {"a": 1}
    (folders.inside / "notes" / "b" / "own").rmdir()
    (folders.inside / "notes" / "b").rmdir()
    assert await folders.show() == []
    assert folders.seen() == {"a": 1, "b": 1, "half": 1}
    assert await folders.save() == []


async def test_a_file_that_code_has_open_is_not_replaced_until_it_is_closed(folders: Folders) -> None:
    (folders.folder() / "a").write_text("1")
    (folders.folder() / "b").write_text("1")
    await folders.show()
    await folders.save()
    with (folders.inside / "notes" / "a").open():
        for name in ("a", "b"):
            (folders.folder() / name).write_text("23")
        (held,) = await folders.show()
        assert (held.code, held.facts["names"]) == ("view_held", ("a",))
        assert folders.seen() == {"a": 1, "b": 2}
    assert await folders.show() == []
    assert folders.seen() == {"a": 2, "b": 2}


async def test_a_file_that_goes_while_it_is_copied_is_no_problem(folders: Folders) -> None:
    for name in ("a", "b"):
        (folders.folder() / name).write_text("1")
    folders.sandbox.starts = lambda tool: (folders.folder() / "a").unlink(missing_ok=True) if tool == "tar" else None
    assert await folders.show() == []
    assert folders.seen() == {"b": 1}
    assert await folders.save() == []
    assert sorted(os.listdir(folders.folder())) == ["b"]


@pytest.mark.parametrize(("shift", "kept"), [(0, True), (-(10**9), False), (1, False)])
async def test_a_copy_may_have_lost_the_fractions_of_a_second(folders: Folders, shift: int, kept: bool) -> None:
    """Some versions of tar lose them; a file with any other time has been changed by code since it was copied.

    Its permissions have not.
    """
    time = 1_700_000_001 * 10**9
    (folders.folder() / "a").write_text("1")
    os.utime(folders.folder() / "a", ns=(time + 5, time + 5))
    inside = folders.inside / "notes" / "a"

    def change() -> None:
        if not kept:
            inside.write_text("2")
        os.utime(inside, ns=(time + shift, time + shift))

    folders.sandbox.looks = change
    assert await folders.show() == []
    tools: list[str] = []
    folders.sandbox.starts = tools.append
    assert codes(await folders.save()) == ([] if kept else ["results_saved"])
    assert ("tar" in tools) != kept


@pytest.mark.parametrize("ends", ["unusually", "never"])
async def test_what_an_unusual_end_left_and_could_not_be_saved_replaces_nothing_later(
    folders: Folders, ends: str
) -> None:
    """Nor does it after a run that ends as usual."""
    with small_disk(folders.folder(), "8k"):
        filler = folders.folder() / ".filler"
        filler.write_text("1")
        (folders.folder() / "a").write_text("1")
        await folders.show()
        (folders.inside / "notes" / "a").write_text("2")
        (failed,) = await (folders.show() if ends == "never" else folders.save(whole=False))
        assert (failed.code, failed.step) == ("result_not_saved", "it is tried again after the next run")
        assert codes(await folders.save()) == ["result_not_saved"]
        (lost,) = await folders.save(last=True)
        assert lost.step == "the session has ended, and this is lost"
        filler.unlink()
        assert codes(await folders.save()) == ["results_beside"]
        assert [(folders.folder() / name).read_text() for name in ("a", "a.from-code")] == ["1", "2"]


@pytest.mark.parametrize("touched", [True, False])
async def test_after_an_unusual_end_without_changes_everything_is_saved_again(folders: Folders, touched: bool) -> None:
    (folders.folder() / "a").write_text("1")
    await folders.show()
    if touched:
        (folders.inside / "notes" / "b").touch()
        (folders.inside / "notes" / "b").unlink()
    assert await folders.save(whole=False) == []
    (folders.inside / "notes" / "a").write_text("2")
    assert codes(await folders.save()) == ["results_saved"]
    assert (folders.folder() / "a").read_text() == "2"


async def test_what_is_gone_from_a_folder_is_gone_from_its_copy_and_was_not_deleted_by_code(folders: Folders) -> None:
    for name in ("a", "b", "d/c"):
        (folders.folder() / name).parent.mkdir(exist_ok=True)
        (folders.folder() / name).write_text("1")
    await folders.show()
    await folders.save()
    (folders.folder() / "a").unlink()
    (folders.folder() / "d" / "c").unlink()
    (folders.folder() / "d").rmdir()
    assert await folders.show() == []
    assert (os.listdir(folders.inside / "notes"), await folders.save()) == (["b"], [])


@pytest.mark.parametrize(
    ("opened", "whole", "moved"),
    [({"notes": ":rwd"}, True, True), ({"notes": ":rwd"}, False, False), ({"notes": ":rw"}, True, False)],
)
async def test_a_folder_moves_with_what_code_has_not_seen_of_it_or_stays(
    folders: Folders, whole: bool, moved: bool
) -> None:
    (folders.folder() / "d").mkdir()
    for name in ("a", ".hidden"):
        (folders.folder() / "d" / name).write_text("1")
    await folders.show()
    (folders.inside / "notes" / "d").rename(folders.inside / "notes" / "e")
    notes = await folders.save(whole=whole)
    assert ("results_moved" in codes(notes), "results_kept" in codes(notes)) == (moved, not moved)
    assert (folders.folder() / ("e" if moved else "d") / ".hidden").exists()
    assert (folders.folder() / "d").exists() != moved
