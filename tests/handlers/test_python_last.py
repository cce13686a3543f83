"""In a session's last run, Python's runner does what the interpreter does when it exits."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .driver import Runner
from .python_environment import python

LEFT = (
    "import atexit, threading, time\n"
    "atexit.register(print, 'bye')\n"
    "thread = threading.Thread(target=lambda: (time.sleep(0.05), print('thread')))\n"
    "thread.start()\n"
)


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    with python(tmp_path) as started:
        yield started


def test_exit_functions_run_in_the_last_run_only(runner: Runner) -> None:
    assert runner.run(f"{LEFT}thread.join()").out == "thread\n"
    last = runner.run("print('last')", last=True)
    assert (last.out, last.status) == ("last\nbye\n", "ok")


def test_exit_functions_run_after_an_error_is_printed_and_do_not_change_the_exit_code(runner: Runner) -> None:
    run = runner.run(f"{LEFT}import sys\natexit.register(print, 'late', file=sys.stderr)\nsys.exit(3)", last=True)
    assert (run.out, run.exit_code) == ("thread\nbye\n", 3)
    failed = runner.run("import atexit, sys\natexit.register(print, 'late', file=sys.stderr)\n1 / 0", last=True)
    assert failed.err.endswith("ZeroDivisionError: division by zero\nlate\n")
    assert failed.exit_code == 1


def test_an_exit_function_that_fails_is_reported(runner: Runner) -> None:
    run = runner.run("import atexit\natexit.register(print, 'bye')\natexit.register(lambda: 1 / 0)", last=True)
    assert (run.out, run.exit_code) == ("bye\n", 0)
    assert "ZeroDivisionError" in run.err


def test_files_of_exit_functions_are_reported(runner: Runner) -> None:
    code = "import atexit\natexit.register(lambda: open('late.txt', 'w').close())"
    assert runner.run(code, last=True).report["files"] == ["late.txt"]


def test_a_thread_that_does_not_end_is_interrupted(runner: Runner) -> None:
    code = (
        "import threading\n"
        "def wait():\n    threading.main_thread().join()\n    print('waited for')\n    threading.Event().wait()\n"
        "threading.Thread(target=wait).start()"
    )
    runner.send(code, last=True)
    runner.wait_for("waited for")
    runner.interrupt()
    run = runner.finish()
    assert (run.out, run.exit_code) == ("waited for\n", 0)


def test_objects_end_as_they_do_when_an_interpreter_exits(runner: Runner) -> None:
    code = (
        "text = 'deleted'\nclass Noted:\n    def __del__(self): print(text)\nnoted = Noted()\nnoted.itself = noted\n"
        "file = open('held.txt', 'w')\nfile.write('held')\nasync def lost(): pass\nlost()"
    )
    run = runner.run(code, last=True, inspect=True)
    assert (run.out, run.files) == ("deleted\n", ["held.txt"])
    assert (runner.workdir / "held.txt").read_text() == "held"
    assert "RuntimeWarning: coroutine 'lost' was never awaited" in run.err
    assert "/sandbox_" not in run.err
    assert run.report["inspection"]["values"]["text"] == '"deleted"'


TASKS = (
    "import asyncio\nasync def work(name, seconds=0.01):\n    try:\n        await asyncio.sleep(seconds)\n        print(name, 'done')\n"
    "    except asyncio.CancelledError:\n        print(name, 'cancelled')\n"
)


def test_tasks_are_waited_for_by_code_that_only_creates_them(runner: Runner) -> None:
    run = runner.run(f"{TASKS}task = asyncio.create_task(work('task'))", last=True)
    assert (run.out, run.err, run.exit_code) == ("task done\n", "", 0)


def test_tasks_that_are_left_by_code_that_awaits_or_fails_are_cancelled(tmp_path: Path) -> None:
    for end, exit_code in (("await asyncio.sleep(0)", 0), ("asyncio.run(asyncio.sleep(0))\n1 / 0", 1)):
        with python(tmp_path) as runner:
            runner.run(f"{TASKS}task = asyncio.create_task(work('task', 60))\nawait asyncio.sleep(0)")
            run = runner.run(end, last=True)
            assert (run.out, run.exit_code) == ("task cancelled\n", exit_code)


def test_an_exit_of_such_a_task_is_that_of_the_code(runner: Runner) -> None:
    code = "import asyncio, sys\nasync def work():\n    sys.exit(3)\ntask = asyncio.create_task(work())"
    assert runner.run(code, last=True).exit_code == 3


def test_exit_functions_of_the_code_itself_are_reported_once(runner: Runner) -> None:
    code = "import atexit, concurrent.futures, logging, multiprocessing.util, tempfile\ntempfile.TemporaryDirectory()"
    assert "waits" not in runner.run(code).report
    assert runner.run("@atexit.register\ndef bye(): print('bye')").report["waits"] is True
    assert "waits" not in runner.run("atexit.register(print)").report


def test_exit_functions_are_not_reported_in_a_last_run(runner: Runner) -> None:
    run = runner.run("import atexit\natexit.register(print, 'bye')", last=True)
    assert (run.out, "waits" in run.report) == ("bye\n", False)
