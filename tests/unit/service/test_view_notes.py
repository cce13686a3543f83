"""Which notes a run's changes of a folder get, what each names, and what is to be done."""

from pathlib import Path
from typing import Any

import pytest

from llm_sandbox_mcp.base.messages import Note
from llm_sandbox_mcp.base.open_folders import OpenFolder, View
from llm_sandbox_mcp.files.report import Report
from llm_sandbox_mcp.service import view_notes


def view(end: str = ":rw") -> View:
    return View("/data/notes", OpenFolder.parse(f"/home/me/notes{end}"))


def notes_of(report: Report, end: str = ":rw", *, whole: bool = True, last: bool = False) -> list[Note]:
    return view_notes.notes_of(view(end), report, whole=whole, last=last)


def told(report: Report, end: str = ":rw", *, whole: bool = True, last: bool = False) -> list[tuple[str, object]]:
    """The code of each note, and the names that it has for programs."""
    return [(note.code, note.facts["names"]) for note in notes_of(report, end, whole=whole, last=last)]


def test_nothing_is_told_of_nothing() -> None:
    assert told(Report()) == []


def test_a_new_folder_is_named_only_if_nothing_in_it_is() -> None:
    report = Report(saved=["b/c", "a"], folders=["b", "empty", "moved"], moved={"old": "moved/new"})
    assert told(report) == [("results_saved", ("a", "b/c", "empty/")), ("results_moved", ("old to moved/new",))]


def test_what_is_in_a_folder_is_named_once() -> None:
    report = Report(deleted=["d/a", "d", "e"], kept=["k", "k/b"], beside={"f/": "g/", "f/a": "g/a", "h/": "i/"})
    assert told(report) == [
        ("results_deleted", ("d", "e")),
        ("results_beside", ("f/a (the code's is g/a)", "h/ (the code's is i/)")),
        ("results_kept", ("k",)),
    ]


def test_a_version_beside_a_file_that_is_gone_has_a_note_of_its_own() -> None:
    report = Report(beside={"gone": "gone.from-code", "b": "b.from-code"}, missing=["gone"])
    assert told(report) == [
        ("results_beside", ("b (the code's is b.from-code)",)),
        ("results_beside", ("gone (as gone.from-code)",)),
    ]


@pytest.mark.parametrize("end", [":rw", ":rwd"])
def test_what_code_deleted_and_is_kept_has_the_step_that_helps(end: str) -> None:
    (kept,) = notes_of(Report(kept=["a"]), end)
    assert ("with :rwd instead of :rw" in kept.step) == (end == ":rw")
    assert ("since what it may have made of them is not saved" in kept.cause) == (end == ":rwd")


@pytest.mark.parametrize(("whole", "last"), [(True, False), (False, False), (True, True), (False, True)])
def test_deletions_that_wait_say_why_and_until_when(whole: bool, last: bool) -> None:
    (waiting,) = notes_of(Report(waiting=["d", "d/a"]), ":rwd", whole=whole, last=last)
    assert (waiting.code, waiting.facts["names"]) == ("results_kept", ("d",))
    assert ("since not all else is saved" in waiting.cause) == whole
    assert ("since the run was stopped, crashed or reached a limit" in waiting.cause) == (not whole)
    assert waiting.step == ("" if last else "that is done after another run of this session")
    assert notes_of(Report(waiting=["d"]), ":rw", whole=whole, last=last) == []


def test_each_other_list_has_its_note() -> None:
    report = Report(
        changed=["c"], filled=["f"], held=["h"], bits={"b"}, attributes=["x"], incomplete=["i"], refused={"why": ["r"]}
    )
    assert told(report) == [
        ("results_kept", ("c",)),
        ("results_kept", ("f",)),
        ("results_open", ("h",)),
        ("permissions_kept", ("b",)),
        ("attributes_left", ("x",)),
        ("results_incomplete", ("i",)),
        ("result_not_saved", ("r",)),
    ]


@pytest.mark.parametrize("whole", [True, False])
def test_after_an_unusual_end_all_that_was_saved_may_be_incomplete(whole: bool) -> None:
    notes = notes_of(Report(saved=["a", "b"], incomplete=["b"]), whole=whole)
    assert [note.code for note in notes] == ["results_saved", "results_incomplete"]
    assert notes[1].facts["names"] == (("b",) if whole else ("a", "b"))
    assert (notes[1].step == "check them") == (not whole)
    assert told(Report(), whole=whole) == []


@pytest.mark.parametrize("last", [True, False])
def test_what_was_not_saved_is_tried_again_or_lost(last: bool) -> None:
    failed, unready = notes_of(Report(failed={"disk full": ["a"]}, unready={"busy": ["b", "c"]}), last=last)
    assert failed.cause == "a of /data/notes was not saved: /home/me/notes on this machine cannot be written: disk full"
    assert unready.cause == "b, c of /data/notes were not saved: busy"
    step = "the session has ended, and this is lost" if last else "it is tried again after the next run"
    assert (failed.step, unready.step) == (step, step)


@pytest.mark.parametrize("last", [True, False])
def test_the_step_of_what_is_held_back_or_open_goes_by_whether_another_run_follows(last: bool) -> None:
    back = view_notes.held_back(view(), 3, 20, last=last)
    assert (back.facts["number"], "not saved: 3; at most 20 are saved per run" in back.cause) == (3, True)
    assert ("they are lost" in back.step) == last
    assert ("before the run ends" in view_notes.open_databases(view(), ["a.db"], last=last).step) == last


@pytest.mark.parametrize("kind", ["incomplete", "not_seen", "held"])
def test_ten_names_are_shown_and_a_thousand_are_there_for_programs(kind: str) -> None:
    more: dict[str, tuple[Any, ...]] = {"incomplete": ("why",), "not_seen": ("why", "step"), "held": ()}
    names = [f"n{number}" for number in range(1001)]
    for count, shown in ((10, "n8, n9"), (11, "n8, n9 and 1 more"), (1001, "n8, n9 and 991 more")):
        note = getattr(view_notes, kind)(view(), names[:count], *more[kind])
        assert note.cause.endswith(shown)
        assert note.facts["names"] == tuple(names[: min(count, 1000)])


@pytest.mark.parametrize("empty", [True, False])
def test_a_folder_that_cannot_be_shown_says_what_code_has_instead(tmp_path: Path, empty: bool) -> None:
    there = View("/data/notes", OpenFolder(str(tmp_path)))
    assert view_notes.not_shown(there, "why", empty=empty).code == ("view_empty" if empty else "view_stale")
    gone = View("/data/notes", OpenFolder(str(tmp_path / "gone")))
    assert view_notes.not_shown(gone, "why", empty=empty).step == "make it, or correct the path"
    assert view_notes.not_shown(there, "why", empty=empty).step != "make it, or correct the path"
