"""How a stage of CI handles tests that fail, fail once, hang, or end their process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import journal
from tests.cli.command import ROOT
from tests.journal import Journal
from tests.stage import SLOWEST, UNSTEADY, Run, slowest, verdict
from tests.stage import run as run_stage

pytestmark = pytest.mark.only_in_all

FAILS = "def test_fails(): raise ValueError('always\\nand a second line')"
FAILS_ONCE = """
from pathlib import Path
def test_fails_once():
    mark = Path(__file__).with_suffix(".mark")
    if not mark.exists():
        mark.touch()
        raise ValueError("just now")
"""
ENDS = "import os\ndef test_ends(): os._exit(3)"
HANGS = """
import anyio, pytest
async def wait_in_vain(): await anyio.sleep_forever()
@pytest.mark.anyio
async def test_hangs():
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait_in_vain, name="the one that hangs")
"""
BLOCKS = """
import anyio, pytest, threading
@pytest.mark.anyio
@pytest.mark.timeout(1)
async def test_blocks(): await anyio.to_thread.run_sync(threading.Event().wait)
"""
PASSES = "def test_passes(): pass"


def prepare(folder: Path, *tests: str) -> None:
    """Makes a folder with tests of these texts."""
    # Loading Hypothesis would take half of the start time.
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:schemathesis -p no:hypothesispytest")
    (folder / "conftest.py").write_text('pytest_plugins = ["tests.conftest"]')
    for number, text in enumerate(tests):
        (folder / f"test_{number}.py").write_text(text)


def environment(folder: Path) -> dict[str, str]:
    """Environment variables for a stage; temporary files that a killed process leaves are in the folder."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}


def stage_of(*options: str) -> list[str]:
    """The command that runs a stage."""
    return [sys.executable, "-m", "tests.stage", "sandbox", *options]


def stage(folder: Path, *tests: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
    """Runs a stage on a folder with tests of these texts."""
    prepare(folder, *tests)
    done = subprocess.run(
        stage_of("--workers", "1", *options),
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_test_that_passes_the_second_time_is_named_and_does_not_fail_the_stage(tmp_path: Path) -> None:
    code, output = stage(tmp_path, FAILS_ONCE, PASSES)
    assert code == 0, output
    assert "unsteady: test_0.py::test_fails_once\n  failed once: ValueError: just now (call)" in output


def test_a_test_that_fails_again_is_named_with_its_reason_and_how_to_run_it_alone(tmp_path: Path) -> None:
    code, output = stage(tmp_path, FAILS, FAILS_ONCE)
    assert code == 1, output
    assert "unsteady: test_1.py::test_fails_once" in output
    assert "failed: test_0.py::test_fails\n  why: ValueError: always (call)\n  alone: " in output


def test_a_test_that_ends_its_process_is_named(tmp_path: Path) -> None:
    code, output = stage(tmp_path, ENDS, PASSES)
    assert code == 1, output
    assert "failed: test_0.py::test_ends\n  why: the process that ran it ended" in output


def test_a_test_that_hangs_is_ended_and_named_with_its_stack(tmp_path: Path) -> None:
    code, output = stage(tmp_path, HANGS, options=("--limit", "20"))
    assert code == 1, output
    assert "it hangs: test_0.py::test_hangs" in output
    assert "in run_forever" in output
    assert "task the one that hangs" in output and "in wait_in_vain" in output
    assert "failed: test_0.py::test_hangs\n  why: it hung" in output


def test_a_test_that_takes_too_long_is_ended_with_its_tasks_printed(tmp_path: Path) -> None:
    code, output = stage(tmp_path, HANGS.replace("@pytest", "@pytest.mark.timeout(1)\n@pytest"))
    assert code == 1, output
    assert "task the one that hangs" in output and "in wait_in_vain" in output
    assert "failed: test_0.py::test_hangs\n  why: tests.stacks.TimeUp: Timeout" in output


def test_a_test_that_waits_forever_for_a_thread_is_ended_with_its_process(tmp_path: Path) -> None:
    code, output = stage(tmp_path, BLOCKS, PASSES, options=("--no-second-look",))
    assert code == 1, output
    assert 'threading.py", line' in output and "in wait" in output
    assert "failed: test_0.py::test_blocks\n  why: " in output
    assert "1 passed" in output


def test_the_processes_of_a_killed_stage_end_with_it(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    prepare(
        tmp_path, f"import os, signal\ndef test_goes_on():\n  os.open({str(begun)!r}, os.O_WRONLY)\n  signal.pause()"
    )
    with (
        subprocess.Popen(
            stage_of("--workers", "1"), cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.DEVNULL
        ) as process,
        begun.open("rb") as open_in_test,
    ):
        process.kill()
        # Returns at EOF: the test, or its process, has ended.
        assert open_in_test.read() == b""


def test_a_file_that_cannot_be_read_fails_the_stage(tmp_path: Path) -> None:
    code, output = stage(tmp_path, "import nothing_of_this_name", PASSES)
    assert code == 1, output
    assert "nothing_of_this_name" in output


def run(code: int | None, *failed: str, chosen: int = 2, ended: int = 2) -> Run:
    return Run(code, Journal(chosen, {str(number): 1.0 for number in range(ended)}, dict.fromkeys(failed, "a reason")))


@pytest.mark.parametrize(
    ("codes", "both"),
    [((0, 0), 0), ((0, 5), 0), ((5, 5), 5), ((1, 0), 1), ((5, 1), 1), ((1, 2), 2), ((2, 1), 2), ((1, None), None)],
)
def test_the_worse_of_two_runs_counts(codes: tuple[int | None, int | None], both: int | None) -> None:
    one, other = (run(code, str(code)) for code in codes)
    assert (one + other).code == both
    assert (one + other).journal.failed.keys() == {str(code) for code in codes}


def test_a_run_that_passed_has_no_message() -> None:
    assert verdict(run(0), None) == (True, [])


def test_the_slowest_tests_are_listed_with_their_time() -> None:
    took = {str(seconds): float(seconds) for seconds in range(SLOWEST + 5)}
    listed = slowest(Journal(ended=took))
    assert listed[0] == (str(SLOWEST + 4), SLOWEST + 4.0)
    assert [seconds for _, seconds in listed] == sorted(took.values(), reverse=True)[:SLOWEST]


def test_a_run_that_found_no_test_has_not_passed() -> None:
    assert verdict(run(5), None) == (False, ["there is no such test in this ring"])


@pytest.mark.parametrize(("chosen", "ended"), [(2, 1), (2, 0), (0, 0)])
def test_a_run_that_did_not_run_all_tests_has_not_passed(chosen: int, ended: int) -> None:
    assert verdict(run(0, chosen=chosen, ended=ended), None) == (False, [f"of {chosen} tests {ended} were run"])


def test_an_existing_record_does_not_keep_a_process_from_reading_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The record exists for a process that starts late, or replaces one that a test ended.
    record, folder = tmp_path / "record", tmp_path / "folder"
    record.touch()
    folder.mkdir()
    prepare(folder, PASSES)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    found = run_stage(("--ring=sandbox",), 100, record)
    assert (found.code, [*found.journal.ended]) == (0, ["test_0.py::test_passes"])


def test_many_failures_get_no_second_look() -> None:
    good, lines = verdict(run(1, *map(str, range(UNSTEADY + 1))), None)
    assert not good
    assert f"{UNSTEADY + 1} tests failed; a second look is taken at up to {UNSTEADY}" in lines


@pytest.mark.parametrize("code", [None, 2, 3, 4, 5])
def test_a_second_look_that_does_not_pass_does_not_save_the_stage(code: int | None) -> None:
    assert not verdict(run(1, "a"), run(code))[0]


def test_a_record_that_was_cut_off_is_read_up_to_that_point(tmp_path: Path) -> None:
    whole = [{"chosen": 2}, {"test": "a", "began": 7}, {"test": "a", "failed": "why"}, {"test": "a", "ended": 0.5}]
    (tmp_path / "record").write_text(
        "".join(f"{json.dumps(line)}\n" for line in (*whole, {"test": "b", "began": 8})) + '{"test": "b", "fai'
    )
    found = journal.read(tmp_path / "record")
    assert (found.chosen, found.ended, found.failed, found.running) == (2, {"a": 0.5}, {"a": "why"}, {"b": 8})
    assert journal.read(tmp_path / "none") == Journal()
