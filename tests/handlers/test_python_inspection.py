"""Python's runner reports the values of names on request, and no code can prevent its report."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .driver import Runner
from .python_environment import python


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    with python(tmp_path) as started:
        yield started


def test_values_are_reported_only_on_request(runner: Runner) -> None:
    assert "inspection" not in runner.run("x = 1").report
    assert runner.run("y = x", inspect=True).report["inspection"] == {"values": {"y": "1"}, "left_out": []}
    assert "inspection" not in runner.run("1 / 0").report


def test_an_error_is_reported_instead_of_values(runner: Runner) -> None:
    inspection = runner.run("x = 1\n1 / 0", inspect=True).report["inspection"]
    assert set(inspection) == {"error"}
    assert (inspection["error"]["type"], inspection["error"]["message"]) == ("ZeroDivisionError", "division by zero")


def test_a_report_of_more_names_than_the_server_reads_leaves_some_out(runner: Runner) -> None:
    inspection = runner.run("globals().update((f'n{i}', i) for i in range(10_000))", inspect=True).report["inspection"]
    assert (len(inspection["values"]), len(inspection["left_out"])) == (4_000, 50)


@pytest.mark.parametrize(
    "code",
    [
        "import sys\nsys.modules.clear()",
        "import builtins\nbuiltins.__import__ = None",
        "import json\njson.dumps = lambda *_, **__: 1",
        "import json\njson.dumps = lambda *_, **__: 1 / 0",
        "import symtable\nsymtable.symtable = None",
        "class M(type):\n    __name__ = 5\nclass E(Exception, metaclass=M): pass\nraise E",
        "class D(dict):\n    def items(self): raise SystemExit\nd = D(a=1)",
        "class D(dict):\n    def items(self):\n        print('called')\n        globals().clear()\n        return []\nd = D(a=1)",
        "import os\nif os.fork() == 0: child = 1\nelse: os.wait()",
    ],
)
def test_whatever_code_does_the_runner_reports_and_continues(runner: Runner, code: str) -> None:
    runner.run(code, inspect=True)
    assert runner.run("z = 2\nz", inspect=True).result == "2"


def test_an_interrupt_while_values_are_encoded_leaves_them_out(runner: Runner) -> None:
    code = "class D(dict):\n    def items(self):\n        print('called', flush=True)\n        while True: pass\nd = D(a=1)"
    runner.send(code, inspect=True)
    runner.wait_for("called")
    runner.interrupt()
    assert "inspection" not in runner.finish().report
    assert runner.run("x = 2\nx").result == "2"
