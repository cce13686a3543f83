"""Processes that start fresh (spawn, forkserver) know what the code defines."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from .driver import Runner
from .python_environment import python

SPAWN = "import multiprocessing as mp\nspawn = mp.get_context('spawn')\n"


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    # A short path: the server of forkserver listens at a socket below it.
    with TemporaryDirectory() as temporary, python(tmp_path, TMPDIR=temporary) as started:
        yield started


def test_definitions_of_all_runs_and_the_values_that_they_use_are_known(runner: Runner) -> None:
    runner.run(
        "import collections, dataclasses, enum, math\n"
        "try:\n    import json\n    found = True\nexcept ImportError:\n    found = False\n"
        "Pair = collections.namedtuple('Pair', 'a b')\nhalf = lambda n: n / 2\nprint('not again')"
    )
    runner.run(
        "class Color(enum.Enum):\n    RED = 1\n"
        "@dataclasses.dataclass\nclass Point:\n    x: int\n    color: Color = Color.RED\n"
        "table = {'point': Point(4)}\nlimit: int = 10\nfor limit in range(3): pass"
    )
    runner.run("def work(n):\n    return 'earlier'")
    runner.run("def work(pair):\n    return Point(half(pair.a) + limit), table['point'], found, math.isqrt(9)")
    run = runner.run(f"{SPAWN}with spawn.Pool(1) as pool:\n    done = pool.map(work, [Pair(1, 2)])\ndone")
    point = "color=<Color.RED: 1>)"
    assert (run.out, run.result) == ("", f"[(Point(x=2.5, {point}, Point(x=4, {point}, True, 3)]")


def test_every_way_to_start_such_a_process_works(runner: Runner) -> None:
    runner.run(
        f"{SPAWN}from concurrent.futures import ProcessPoolExecutor\ndef square(n):\n    return n * n\n"
        "class Worker(spawn.Process):\n    def run(self):\n        print('worker', square(3))\n"
        "def nested(n):\n    with ProcessPoolExecutor(1, mp_context=spawn) as pool:\n"
        "        return list(pool.map(square, [n]))"
    )
    assert runner.run("worker = Worker()\nworker.start()\nworker.join()\nworker.exitcode").out == "worker 9\n"
    assert runner.run("process = spawn.Process(target=print, args=(1,))\nprocess.start()\nprocess.join()").out == "1\n"
    for method in ("spawn", "forkserver"):
        code = "with ProcessPoolExecutor(1, mp_context=mp.get_context({!r})) as pool:\n    done = list(pool.map(nested, [5]))\ndone"
        run = runner.run(code.format(method))
        assert (run.result, run.err) == ("[[25]]", "")


def test_an_error_there_has_the_line_of_the_code(runner: Runner) -> None:
    runner.run(f"{SPAWN}def fail(n):\n    return 1 / n")
    err = runner.run("with spawn.Pool(1) as pool:\n    pool.map(fail, [0])").err
    assert '  File "<cell 1>", line 4, in fail\n    return 1 / n\n' in err


def test_what_has_no_definition_is_an_error_at_once(runner: Runner) -> None:
    runner.run(f"{SPAWN}exec('def lost(n): return n')\nexec('class Lost: pass')\ndef same(n): return n")
    run = runner.run("with spawn.Pool(1) as pool:\n    pool.map(lost, [1])")
    assert "AttributeError: 'lost' is not known in a process that starts fresh" in run.err
    assert "get_context" in run.err
    assert runner.run("with spawn.Pool(1) as pool:\n    pool.map(same, [Lost()])").status == "error"
    run = runner.run(
        "process = spawn.Process(target=lost, args=(1,))\nprocess.start()\nprocess.join()\nprocess.exitcode"
    )
    assert run.result == "1"
    assert "'lost' is not known" in run.err
    runner.run("lock = mp.Lock()\ndef locked(n, lock=lock): return n")
    assert "line 2 of <cell 5>: NameError(" in runner.run("with spawn.Pool(1) as pool:\n    pool.map(locked, [1])").err


def test_a_lambda_is_an_error_at_once(runner: Runner) -> None:
    assert (
        "Can't pickle <function <lambda>"
        in runner.run(f"{SPAWN}with spawn.Pool(1) as pool:\n    pool.map(lambda n: n, [1])").err
    )
