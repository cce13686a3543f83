"""Modules that Python's runner imports before any code asks for them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .driver import Runner
from .python_environment import keep_bytecode, python


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    with python(tmp_path) as started:
        yield started


@pytest.fixture
def plotting(tmp_path: Path) -> Iterator[Runner]:
    keep_bytecode("matplotlib.pyplot", "matplotlib")
    with python(tmp_path, "matplotlib") as started:
        yield started


def preloaded(runner: Runner, source: str) -> dict[str, Any]:
    """What the runner reports of a module with this source."""
    (runner.workdir / "wanted.py").write_text(source)
    run = runner.run("", preload="wanted")
    assert (run.out, run.err, run.status) == ("", "", "ok")
    found: dict[str, Any] = run.report["preloaded"]
    return found


@pytest.mark.parametrize(
    ("source", "starts"),
    [
        ("x = 1", ""),
        ("import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()", "threads"),
        ("import subprocess\nchild = subprocess.Popen(['sleep', 'infinity'])", "processes"),
        ("import os, signal\nos.fork() or signal.pause()", "processes"),
        ("import socket\nlistening = socket.create_server(('127.0.0.1', 0))", "connections"),
        ("import socket\npair = socket.socketpair()", ""),
    ],
)
def test_what_a_module_leaves_behind_that_goes_on_is_reported(runner: Runner, source: str, starts: str) -> None:
    assert preloaded(runner, source)["starts"] == starts


def test_what_a_module_took_and_looked_for_in_vain_is_reported(runner: Runner) -> None:
    source = "try:\n    import optional_one.part\nexcept ImportError: pass\nkept = bytes(range(256)) * (1 << 17)"
    found = preloaded(runner, source)
    assert found["missed"] == ["optional_one"]
    assert found["memory"] > 30 << 20


def test_code_finds_the_module_its_folder_and_its_namespace_as_if_nothing_had_happened(runner: Runner) -> None:
    preloaded(runner, "import os\nos.chdir('/')\nos.umask(0o077)\nnumber = [1]")
    names = "[name for name in dir() if name[0] != '_']"
    assert runner.run(f"print({names})\nimport os, wanted").out == "[]\n"
    assert runner.run("os.getcwd(), oct(os.umask(0o22)), wanted.number").result == f"('{runner.workdir}', '0o22', [1])"


def test_only_a_package_that_is_not_there_is_missing(runner: Runner) -> None:
    for name in ("nothing_there", "nothing_there.part"):
        assert runner.run("", preload=name).report["preloaded"] == {"missing": True}
    run = runner.run("", preload="json.nothing")
    assert run.exit_code == 1
    assert run.err.splitlines()[-1] == "ModuleNotFoundError: No module named 'json.nothing'"


@pytest.mark.parametrize(
    "choice", ["matplotlib.use('TkAgg')", "matplotlib.rcParams['backend'] = 'TkAgg'", "matplotlib.use('svg')"]
)
def test_pyplot_obeys_what_code_sets_before_it_imports_it(plotting: Runner, choice: str) -> None:
    draw = "import matplotlib.pyplot as plt\nplt.plot([1])\nplt.savefig('x')\nplt.get_backend()"
    bare = plotting.run(f"import matplotlib\n{choice}\n{draw}")
    with python(plotting.workdir, "matplotlib") as ahead:
        assert ahead.run("", preload="matplotlib.pyplot").report["preloaded"]["starts"] == ""
        assert ahead.run("import sys\n'matplotlib' in sys.modules, 'matplotlib.pyplot' in sys.modules").result == (
            "(True, False)"
        )
        run = ahead.run(f"import matplotlib\n{choice}\n{draw}")
    assert (run.status, run.result, run.files) == (bare.status, bare.result, bare.files)
    assert run.err.splitlines()[-1:] == bare.err.splitlines()[-1:]
    assert run.status == ("error" if choice == "matplotlib.use('TkAgg')" else "ok")
