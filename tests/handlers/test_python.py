"""The results of runs of Python code, and the state that is kept for the next run."""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from .driver import HANDLERS, Runner, start
from .python_environment import environment, python


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    with python(tmp_path) as started:
        yield started


def test_the_last_expression_is_the_result(runner: Runner) -> None:
    assert runner.run("x = 6\nx * 7").result == "42"
    assert runner.run("x = 1").result is None
    assert runner.run("None").result is None
    assert runner.run("'text'").result == "'text'"
    assert runner.run("").result is None


def test_the_last_result_is_in_the_underscore_variable(runner: Runner) -> None:
    runner.run("41")
    assert runner.run("_ + 1").result == "42"
    runner.run("None")
    assert runner.run("_").result == "42"


def test_output_is_unchanged_and_complete(runner: Runner) -> None:
    run = runner.run("import sys\nprint('out', end='')\nprint('err', end='', file=sys.stderr)")
    assert (run.stdout, run.stderr) == (b"out", b"err")
    assert runner.run("import os\nos.system('echo child') and None").stdout == b"child\n"
    assert runner.run("sys.stdout.buffer.write(bytes(range(256))); None").stdout == bytes(range(256))


def test_lines_arrive_while_the_code_runs(runner: Runner) -> None:
    runner.send("import time\nprint('started')\ntime.sleep(60)")
    runner.wait_for("started")
    runner.interrupt()
    runner.finish()


def test_state_is_kept_also_after_an_error(runner: Runner) -> None:
    runner.run("import os, math\ndef double(n):\n    return 2 * n\nos.mkdir('sub')\nos.chdir('sub')\nkept = 4\n1 / 0")
    run = runner.run("double(kept), math.pi > 3, os.path.basename(os.getcwd())")
    assert run.result == "(8, True, 'sub')"


def test_variables_are_added_to_the_namespace(runner: Runner) -> None:
    variables = {"text": 'q"\n\\é\U0001f600', "items": [1, 2.5, None, True], "table": {"a": {"b": []}}}
    run = runner.run("(text, items, table)", variables)
    assert run.result == repr((variables["text"], variables["items"], variables["table"]))


def test_a_result_is_at_most_20000_characters(runner: Runner) -> None:
    for code in ("'x' * 10**7", "[0] * 10**7", "{i: i for i in range(10**5)}", "b'x' * 10**7", "set(range(10**5))"):
        result = runner.run(code).result
        assert result is not None
        assert len(result) == 20_000
        assert result.endswith("…")
    assert runner.run("'x' * 19998").result == repr("x" * 19_998)
    assert runner.run("class Big:\n    def __repr__(self): return 'y' * 50_000\nBig()").result == "y" * 19_999 + "…"


def test_text_that_utf8_cannot_represent_stays_visible(runner: Runner) -> None:
    assert runner.run("print('\\ud800 \\0')").stdout == b"\\ud800 \0\n"
    assert (
        runner.run("class Odd:\n    def __repr__(self): return 'a\\ud800\\0\\x1e\"'\nOdd()").result == 'a\\ud800\0\x1e"'
    )
    assert runner.run("raise ValueError('\\udcff')").err.endswith("ValueError: \\udcff\n")


def test_a_repr_that_returns_a_subclass_of_str_is_cut_too(runner: Runner) -> None:
    code = (
        "class Text(str):\n    def __len__(self): return 0\n    def encode(self, *a): raise ValueError\n"
        "class Odd:\n    def __repr__(self): return Text('z' * 30_000)\nOdd()"
    )
    assert runner.run(code).result == "z" * 19_999 + "…"


def test_a_repr_that_raises_is_an_error_of_the_run(runner: Runner) -> None:
    run = runner.run("class Bad:\n    def __repr__(self):\n        raise RuntimeError('no repr')\nBad()")
    assert (run.status, run.exit_code, run.result) == ("error", 1, None)
    assert run.err == (
        "Traceback (most recent call last):\n"
        '  File "<cell 1>", line 3, in __repr__\n'
        "    raise RuntimeError('no repr')\n"
        "RuntimeError: no repr\n"
    )


def test_tracebacks_have_the_lines_of_the_code_and_no_frames_of_the_runner(runner: Runner) -> None:
    runner.run("def fail():\n    raise ValueError('deep')")
    run = runner.run("\n\nfail()\n")
    err = re.sub(r" +[~^]+\n", "", run.err)  # newer versions underline more
    assert err == (
        "Traceback (most recent call last):\n"
        '  File "<cell 2>", line 3, in <module>\n'
        "    fail()\n"
        '  File "<cell 1>", line 2, in fail\n'
        "    raise ValueError('deep')\n"
        "ValueError: deep\n"
    )
    assert (run.status, run.exit_code, run.interrupted) == ("error", 1, False)


def test_form_feeds_do_not_shift_the_lines_of_a_traceback(runner: Runner) -> None:
    assert "    raise KeyError('here')\n" in runner.run("a = '\x0c \u2028'\n\x0cb = 1\r\nraise KeyError('here')").err


def test_chained_exceptions_are_printed_completely(runner: Runner) -> None:
    code = "try:\n    {}['a']\nexcept KeyError as error:\n    raise ValueError('b') from error"
    err = runner.run(code).err
    assert err.index("KeyError: 'a'") < err.index("direct cause") < err.index("ValueError: b")
    assert "sandbox_" not in err


def test_exception_groups_are_printed_as_a_tree(runner: Runner) -> None:
    if not runner.run("ExceptionGroup").result:
        pytest.skip("the interpreter under test has no exception groups")
    err = runner.run("raise ExceptionGroup('several', [ValueError(1), TypeError(2)])").err
    assert "Exception Group Traceback" in err
    assert "ValueError: 1" in err
    assert "TypeError: 2" in err
    assert "sandbox_" not in err


def test_syntax_errors_show_the_line_and_no_traceback(runner: Runner) -> None:
    for code, line in (("x = 1\ny = = 2", "    y = = 2\n"), ("x = 1\nreturn 5", "    return 5\n")):
        run = runner.run(code)
        assert run.err.startswith(f'  File "<cell {runner.cell}>", line 2\n{line}')
        assert "SyntaxError" in run.err
        assert "Traceback" not in run.err


def test_code_with_nul_is_an_error_of_the_run(runner: Runner) -> None:
    assert runner.run("x = '\0'").status == "error"
    assert runner.run("1").result == "1"


def test_the_code_can_print_its_own_tracebacks_and_read_its_source(runner: Runner) -> None:
    run = runner.run("import traceback\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    traceback.print_exc()")
    assert '  File "<cell 1>", line 3, in <module>\n    1 / 0\n' in run.err
    runner.run("def f():\n    return 'body'")
    assert runner.run("import inspect\ninspect.getsource(f)").result == repr("def f():\n    return 'body'\n")


def test_the_code_can_read_the_source_of_classes_of_every_run(runner: Runner) -> None:
    runner.run("class Empty:\n    x = 1\n    class Inner: pass\nclass Twice:\n    def f(self): return 1\nold = Twice")
    runner.run("import dataclasses, inspect\n\n@dataclasses.dataclass\nclass Point:\n    x: int\nclass Twice: pass")
    source = "inspect.getsource({}), inspect.getfile({}), inspect.findsource({})[1]".replace("{}", "{0}")
    for name, expected in {
        "Empty": ("class Empty:\n    x = 1\n    class Inner: pass\n", "<cell 1>", 0),
        "Empty.Inner": ("    class Inner: pass\n", "<cell 1>", 2),
        "old": ("class Twice:\n    def f(self): return 1\n", "<cell 1>", 3),
        "Twice": ("class Twice: pass\n", "<cell 2>", 5),
    }.items():
        assert runner.run(source.format(name)).result == repr(expected)
    decorated = runner.run("inspect.getsource(Point).strip()").result or ""
    assert "class Point:\\n    x: int" in decorated
    run = runner.run("class Absent: pass\nAbsent.__qualname__ = Absent.__name__ = 'Unknown'\ninspect.getfile(Absent)")
    assert run.err.endswith(": source code not available\n")


def test_warnings_and_stacks_have_no_frames_of_the_runner(runner: Runner) -> None:
    err = runner.run("import warnings\nfor level in 1, 2, 3: warnings.warn(f'w{level}', stacklevel=level)").err
    assert "<cell 1>:2: UserWarning: w1\n" in err
    assert "sys:1: UserWarning: w2\nsys:1: UserWarning: w3\n" in err
    run = runner.run("import inspect, logging, traceback\ntraceback.print_stack()\nlogging.error('e', stack_info=True)")
    assert run.err.count("File ") == 2
    assert "sandbox_" not in run.err
    run = runner.run("def f(): return len(inspect.stack()), len(traceback.extract_stack())\nf()")
    assert run.result == "(2, 2)"


def test_the_underscore_of_the_code_stays(runner: Runner) -> None:
    runner.run("1")
    assert runner.run("import gettext\ngettext.install('x')\n7").result == "7"
    assert runner.run("_('hello')").result == "'hello'"
    runner.run("import builtins\ndel builtins._")
    runner.run("8")
    assert runner.run("_").result == "8"


def test_an_excepthook_of_the_code_prints_its_errors(runner: Runner) -> None:
    runner.run("import sys\nsys.excepthook = lambda kind, error, trace: print('hook', error, trace.tb_lineno)")
    assert runner.run("\n1 / 0").out == "hook division by zero 2\n"


def test_future_annotations_work_in_a_cell(runner: Runner) -> None:
    run = runner.run("from __future__ import annotations\ndef f(a: Missing) -> None: ...\nf.__annotations__['a']")
    assert (run.status, run.result) == ("ok", "'Missing'")


@pytest.mark.parametrize(
    ("code", "exit_code", "err"),
    [
        ("import sys\nsys.exit(3)", 3, ""),
        ("import sys\nsys.exit()", 0, ""),
        ("exit()", 0, ""),
        ("exit(4)", 4, ""),
        ("raise SystemExit('text')", 1, "text\n"),
        ("raise SystemExit(-1)", 255, ""),
    ],
)
def test_exit_gives_its_code_and_keeps_the_state(runner: Runner, code: str, exit_code: int, err: str) -> None:
    run = runner.run("kept = 1\n" + code)
    assert (run.exit_code, run.err, run.status) == (exit_code, err, "error" if exit_code else "ok")
    assert runner.run("print('again'); kept").result == "1"


def test_await_works_at_the_top_level_on_one_loop(runner: Runner) -> None:
    assert runner.run("import sys\n'asyncio' in sys.modules").result == "False"
    runner.run(
        "import asyncio\nasync def me():\n    return asyncio.get_running_loop()\n"
        "loop = await me()\nqueue = asyncio.Queue()"
    )
    assert runner.run("await queue.put(5)\n(await me()) is loop, await queue.get()").result == "(True, 5)"
    assert runner.run("async with asyncio.Lock() as nothing:\n    pass\n[i async for i in agen()]").status == "error"
    assert runner.run("asyncio.run(me()) is not loop").result == "True"
    assert runner.run("await asyncio.sleep(0, 'still')").result == "'still'"


def test_tracebacks_of_awaiting_cells_begin_with_the_code(runner: Runner) -> None:
    run = runner.run("import asyncio\nasync def fail():\n    await asyncio.sleep(0)\n    1 / 0\nawait fail()")
    assert run.err.startswith('Traceback (most recent call last):\n  File "<cell 1>", line 5, in <module>\n')
    assert "asyncio/" not in run.err


def test_main_is_a_real_module(runner: Runner) -> None:
    code = (
        "import dataclasses, pickle, sys\n"
        "@dataclasses.dataclass\nclass Point:\n    x: int\n"
        "assert __name__ == '__main__' and sys.modules['__main__'].Point is Point\n"
        "pickle.loads(pickle.dumps(Point(3)))"
    )
    assert runner.run(code).result == "Point(x=3)"


def test_modules_of_the_working_directory_never_shadow_the_standard_library(runner: Runner) -> None:
    for name in ("code", "json", "runner", "cell", "serve"):
        (runner.workdir / f"{name}.py").write_text(f"origin = 'local {name}'")
    assert runner.run("import code, json\nhasattr(code, 'interact'), json.loads('1')").result == "(True, 1)"
    assert (
        runner.run("import runner, cell, serve\ncell.origin, runner.origin").result == "('local cell', 'local runner')"
    )


def test_a_module_written_by_one_run_is_found_by_the_next(runner: Runner) -> None:
    assert "ModuleNotFoundError" in runner.run("import later").err
    run = runner.run("open('later.py', 'w').write('x = 1')\nimport later\nlater.x")
    assert run.result == "1"
    run = runner.run("import importlib\nopen('later.py', 'w').write('x = 2')\nimportlib.reload(later).x")
    assert run.result == "2"


def test_libraries_installed_later_are_also_found_by_children(runner: Runner, tmp_path: Path) -> None:
    libraries = tmp_path / "libraries"
    libraries.rmdir()
    assert "ModuleNotFoundError" in runner.run("import latecomer").err
    libraries.mkdir()
    (libraries / "latecomer.py").write_text("where = 'libraries'")
    (libraries / "enum.py").write_text("raise ImportError('shadowed')")
    assert runner.run("import latecomer\nlatecomer.where").result == "'libraries'"
    child = "import enum, latecomer; print(latecomer.where)"
    run = runner.run(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}]).returncode")
    assert (run.out, run.result) == ("libraries\n", "0")


def test_a_text_is_read_with_its_own_line_ends(runner: Runner) -> None:
    assert runner.run("import sys; sys.stdin.read()", {"__stdin": "a\r\nb\rc"}).result == repr("a\r\nb\rc")


def test_each_run_gives_its_warnings(runner: Runner) -> None:
    for number in (1, 2):
        assert runner.run("import warnings; warnings.warn('careful')").err.startswith(
            f"<cell {number}>:1: UserWarning: careful"
        )


def test_libraries_come_before_those_of_the_environment(runner: Runner) -> None:
    run = runner.run("import sys, os\n[p.endswith('site-packages') for p in sys.path].index(True)")
    assert run.result is not None
    place = (
        f"sys.path[{run.result} - 2 : {run.result}] == [os.environ['SANDBOX_LIBRARIES'], os.path.dirname(pip.__file__)]"
    )
    assert runner.run(f"import pip\n{place}").result == "True"
    assert runner.run("sys.path[-1] == os.environ['SANDBOX_WORKDIR'], '' in sys.path").result == "(True, False)"


def test_processes_run_functions_of_the_code(runner: Runner) -> None:
    runner.run("import multiprocessing\ndef square(n):\n    return n * n\nfork = multiprocessing.get_context('fork')")
    assert (
        runner.run("with fork.Pool(2) as pool:\n    squares = pool.map(square, range(4))\nsquares").result
        == "[0, 1, 4, 9]"
    )
    runner.run("import math\nspawn = multiprocessing.get_context('spawn')")
    assert runner.run("with spawn.Pool(1) as pool:\n    roots = pool.map(math.isqrt, [9])\nroots").result == "[3]"
    # The pool's semaphores belong to the machine and would remain after the runner is killed.
    assert runner.run("import gc\ndel pool\ngc.collect() >= 0").result == "True"


def test_input_is_empty(runner: Runner) -> None:
    assert runner.run("input()").err.endswith("EOFError: EOF when reading a line\n")
    assert runner.run("import sys\nsys.stdin.read()").result == "''"


def test_files_created_and_changed_are_reported(runner: Runner) -> None:
    (runner.workdir / "old.txt").write_text("old")
    (runner.workdir / "same.txt").write_text("same")
    code = (
        "import os, pathlib\nos.makedirs('sub/.hidden')\nos.makedirs('node_modules')\n"
        "for name in ('new.txt', 'sub/deep.txt', '.dot', 'sub/.hidden/x', 'node_modules/y', 'old.txt'):\n"
        "    pathlib.Path(name).write_text('changed')\n"
        "os.symlink('/etc/passwd', 'link')\nos.chdir('/')"
    )
    assert runner.run(code).files == ["new.txt", "old.txt", "sub/deep.txt"]
    assert runner.run("open(os.environ['SANDBOX_WORKDIR'] + '/more.txt', 'w').close()").files == ["more.txt"]
    assert runner.run("1").files == []


def test_files_beyond_200_and_names_that_json_cannot_represent_are_counted(runner: Runner) -> None:
    run = runner.run("for i in range(250):\n    open(f'{i}.txt', 'w').close()\nopen(b'\\xff', 'w').close()")
    assert len(run.files) == 200
    assert run.report["files_omitted"] == 51


def test_only_new_and_changed_files_among_very_many_are_reported(runner: Runner) -> None:
    runner.run(
        "for i in range(10_500):\n    open(f'{i}.txt', 'w').close()\nimport os\nbefore = os.stat('1.txt').st_ctime_ns"
    )
    runner.run("import time\nwhile time.time_ns() - before < 5e7: pass")
    files = runner.run("os.utime('77.txt')\nopen('new.txt', 'w').close()").files
    assert set(files) <= {"77.txt", "new.txt"}


def test_a_deleted_working_directory_breaks_nothing(runner: Runner) -> None:
    run = runner.run("import os, shutil\nshutil.rmtree(os.environ['SANDBOX_WORKDIR'])")
    assert (run.status, run.files) == ("ok", [])
    assert runner.run("1").result == "1"


def test_the_runner_ends_with_its_input_even_if_threads_still_run(runner: Runner) -> None:
    run = runner.run("import threading\nthreading.Thread(target=threading.Event().wait).start()\n'done'")
    assert run.result == "'done'"
    assert runner.end_input() == 0


def test_a_large_request_and_a_long_report_work(runner: Runner) -> None:
    text = "é" * 300_000
    assert runner.run(f"len('{text}')").result == "300000"
    assert runner.run("'\U0001f600' * 30_000").result == "'" + "\U0001f600" * 19_998 + "…"


def test_nothing_heavy_is_imported_before_the_code_needs_it(runner: Runner) -> None:
    heavy = ("json", "re", "ast", "enum", "signal", "traceback", "linecache", "asyncio", "threading")
    assert runner.run(f"import sys\n[name for name in {heavy} if name in sys.modules]").result == "[]"


@pytest.mark.parametrize("example", tomllib.loads((HANDLERS / "python/handler.toml").read_text())["examples"])
def test_the_examples_run(runner: Runner, example: dict[str, str]) -> None:
    run = runner.run(example["code"])
    assert (run.status, run.err) == ("ok", "")
    assert run.result is not None


def test_the_runner_works_without_an_environment(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python3").symlink_to(shutil.which("python3") or sys.executable)
    with start("python", tmp_path, environment=str(folder)) as runner:
        assert runner.run("import sys\nsys.version_info >= (3, 9)").result == "True"


def test_the_version_is_printed() -> None:
    command = [f"{environment()}/bin/python3", "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.startswith("Python 3.")
