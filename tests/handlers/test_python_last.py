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
