"""The runner still answers, whatever code does to the process that it shares with the runner."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .driver import Runner, RunnerEnded
from .python_environment import python


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    with python(tmp_path) as started:
        yield started


@pytest.mark.parametrize(
    "code",
    [
        "print('started')\nwhile True: pass",
        "import time\nprint('started')\ntime.sleep(60)",
        "import subprocess\nsubprocess.run(['sh', '-c', 'echo started; exec sleep 60'])",
        "import asyncio\nasync def main():\n    print('started')\n    await asyncio.sleep(60)\nawait main()",
        "import asyncio\nasync def main():\n    print('started')\n    while True: pass\nawait main()",
        "import asyncio\nasync def main():\n    print('started')\n    await asyncio.sleep(60)\nasyncio.run(main())",
        "import threading\nprint('started')\nthreading.Event().wait(60)",
        "import os\nread, write = os.pipe()\nprint('started')\nos.read(read, 1)",
        "class Slow:\n    def __repr__(self):\n        print('started')\n        while True: pass\nSlow()",
    ],
    ids=["loop", "sleep", "child", "await", "await-loop", "asyncio.run", "event", "read", "repr"],
)
def test_an_interrupt_stops_the_code_and_keeps_the_state(runner: Runner, code: str) -> None:
    runner.run("kept = 1")
    runner.send(code)
    runner.wait_for("started")
    runner.interrupt()
    run = runner.finish()
    assert (run.status, run.exit_code, run.interrupted) == ("error", 130, True)
    assert run.err.endswith("KeyboardInterrupt\n")
    assert f'File "<cell {runner.cell}>"' in run.err
    assert "sandbox_" not in run.err
    assert runner.run("kept").result == "1"
    run = runner.run("import asyncio\nawait asyncio.sleep(0, 'again')")
    assert (run.result, run.err) == ("'again'", "")


def test_a_second_interrupt_while_the_first_is_printed_leaves_one_line(runner: Runner) -> None:
    runner.send(
        "import sys\nkept = 1\ndef hook(*error):\n    print('reported')\n    while True: pass\n"
        "sys.excepthook = hook\nprint('started')\nwhile True: pass"
    )
    runner.wait_for("started")
    runner.interrupt()
    runner.wait_for("reported")
    runner.interrupt()
    run = runner.finish()
    assert (run.status, run.exit_code, run.interrupted, run.err) == ("error", 130, True, "KeyboardInterrupt\n")
    assert runner.run("kept").result == "1"


def test_an_interrupted_coroutine_cleans_up(runner: Runner) -> None:
    runner.send(
        "import asyncio\ntry:\n    print('started')\n    await asyncio.sleep(60)\nfinally:\n    print('cleaned')"
    )
    runner.wait_for("started")
    runner.interrupt()
    run = runner.finish()
    assert (run.out, run.interrupted) == ("started\ncleaned\n", True)


def test_an_interrupt_that_the_code_handles_does_not_end_the_run(runner: Runner) -> None:
    runner.send(
        "try:\n    print('started')\n    while True: pass\nexcept KeyboardInterrupt:\n    answer = 'caught'\nanswer"
    )
    runner.wait_for("started")
    runner.interrupt()
    run = runner.finish()
    assert (run.status, run.result, run.interrupted) == ("ok", "'caught'", False)


def test_a_second_interrupt_reaches_code_that_swallowed_the_first(runner: Runner) -> None:
    runner.send(
        "try:\n    print('one')\n    while True: pass\n"
        "except KeyboardInterrupt:\n    print('two')\n    while True: pass"
    )
    runner.wait_for("one")
    runner.interrupt()
    runner.wait_for("two")
    runner.interrupt()
    assert runner.finish().interrupted


def test_interrupts_between_runs_are_ignored(runner: Runner) -> None:
    runner.run("import os")
    for _ in range(50):
        runner.interrupt()
    run = runner.run("'alive'")
    assert (run.status, run.result) in (("ok", "'alive'"), ("error", None))
    assert runner.run("'alive'").result == "'alive'"


def test_no_interrupt_at_any_moment_loses_a_report(runner: Runner) -> None:
    """Sends many interrupts during short runs, so that they hit every step at the end of a run.

    There is a pause between them, because without a pause the interpreter would only handle signals. They come from a
    process that is not a child of the runner, because an interrupt can leave a lock of `subprocess` locked forever.
    """
    runner.run("1")
    interrupts = "import os, sys, time\nwhile True: os.kill(int(sys.argv[1]), 2); time.sleep(0.0001)"
    with subprocess.Popen([sys.executable, "-Sc", interrupts, str(runner.process.pid)]) as sender:
        try:
            hits = number = 0
            while hits < 100:
                run = runner.run("1 / 0" if number % 3 else "print('x'); 1")
                assert run.report["exit_code"] in (0, 1, 130)
                hits += run.report["exit_code"] == 130
                number += 1
        finally:
            sender.kill()
    assert runner.run("1").result == "1"


@pytest.mark.parametrize("handler", ["signal.SIG_IGN", "lambda *_: print('mine')", "lambda *_: 1 / 0"])
def test_a_signal_handler_of_the_code_lasts_one_run(runner: Runner, handler: str) -> None:
    run = runner.run(f"import os, signal\nsignal.signal(signal.SIGINT, {handler})\nos.kill(os.getpid(), signal.SIGINT)")
    assert not run.interrupted
    runner.interrupt()
    runner.send("print('started')\nwhile True: pass")
    runner.wait_for("started")
    runner.interrupt()
    assert runner.finish().interrupted


def test_an_alarm_of_the_code_ends_with_its_run(runner: Runner) -> None:
    code = "import signal\ndef late(*_):\n    raise TimeoutError('late')\nsignal.signal(signal.SIGALRM, late)\n"
    assert (
        "TimeoutError: late" in runner.run(code + "signal.setitimer(signal.ITIMER_REAL, 0.001)\nwhile True: pass").err
    )
    runner.run("signal.setitimer(signal.ITIMER_REAL, 0.02)")
    run = runner.run("import time\ntime.sleep(0.05)")
    assert (run.status, run.err) == ("ok", "")


def test_a_signal_handler_that_raises_between_runs_breaks_nothing(runner: Runner) -> None:
    runner.run("import signal\ndef late(*_):\n    raise TimeoutError('late')\nsignal.signal(signal.SIGUSR1, late)")
    for _ in range(50):
        os.kill(runner.process.pid, signal.SIGUSR1)
    runner.run("1")
    assert "TimeoutError: late" in runner.run("import os\nos.kill(os.getpid(), signal.SIGUSR1)").err


@pytest.mark.parametrize(
    ("ending", "exit_code"), [("", 0), ("raise ValueError('in the child')", 1), ("raise SystemExit(5)", 5)]
)
def test_a_forked_child_never_answers(runner: Runner, ending: str, exit_code: int) -> None:
    run = runner.run(
        f"import os\nchild = os.fork()\nif child == 0:\n    print('child', end='')\n    {ending or 'pass'}\n"
        "else:\n    status = os.waitpid(child, 0)[1]\nprint(' parent', end='')\n'mine'"
    )
    assert run.result == "'mine'"
    assert run.out == ("child" if ending else "child parent") + " parent"
    assert ("ValueError: in the child" in run.err) == ("ValueError" in ending)
    assert runner.run("os.WEXITSTATUS(status)").result == str(exit_code)


def test_the_servers_streams_are_restored_for_the_next_run(runner: Runner) -> None:
    for code in (
        "import sys, io, os\nsys.stdout = sys.stderr = io.StringIO()",
        "sys.stdout.close(); sys.stderr.close(); sys.stdin.close()",
        "sys.stdout = sys.__stdout__ = sys.stderr = None",
        "sys.stdout.detach(); sys.stderr.detach(); None",
        "os.close(0); os.close(1); os.close(2)",
        "os.closerange(0, 1000)",
        "fd = os.open('file', os.O_CREAT | os.O_WRONLY)\nos.dup2(fd, 1)\nprint('into the file', end='')",
        "os.set_blocking(1, False)",
        "sys.stdout.reconfigure(encoding='ascii', errors='strict')",
    ):
        runner.run(code)
        run = runner.run("print('é out')\nprint('err', file=sys.stderr)\nos.system('echo child') and None")
        assert (run.out, run.err) == ("é out\nchild\n", "err\n"), code
        assert runner.run("input()").err.endswith("EOFError: EOF when reading a line\n")
    assert (runner.workdir / "file").read_text() == "into the file"


def test_errors_are_shown_although_the_code_replaced_standard_error(runner: Runner) -> None:
    assert runner.run("import io, sys\nsys.stderr = io.StringIO()\n1 / 0").err.endswith(
        "ZeroDivisionError: division by zero\n"
    )


def test_a_stream_that_cannot_be_flushed_breaks_nothing(runner: Runner) -> None:
    run = runner.run("import sys\nclass Odd:\n    def flush(self): raise SystemExit(9)\nsys.stdout = Odd()\n1")
    assert (run.status, run.result) == ("ok", "1")
    runner.send(
        "class Stuck:\n    def flush(self):\n        print('started', file=sys.stderr)\n        while True: pass\n"
        "sys.stdout = Stuck()"
    )
    runner.wait_for("started", "stderr")
    runner.interrupt()
    runner.finish()
    assert runner.run("print('back')").out == "back\n"


def test_a_runner_that_lost_every_descriptor_ends_with_status_71(runner: Runner) -> None:
    with pytest.raises(RunnerEnded, match="exit code 71"):
        runner.run("import os\nos.closerange(0, 65536)")


def test_output_that_looks_like_frames_changes_nothing(runner: Runner) -> None:
    fake = "\\x1e" + "0" * 32 + ".2\\n{}"
    run = runner.run(f"import sys\nprint('{fake}')\nprint('{fake}', file=sys.stderr)\n1")
    assert run.result == "1"
    assert run.stdout == b"\x1e" + b"0" * 32 + b".2\n{}\n"


def test_code_cannot_reach_the_nonce_and_the_input(runner: Runner) -> None:
    runner.send(
        "import os, sys, subprocess\nsubprocess.run('ls -l /proc/self/fd', shell=True)\n"
        "for name, module in list(sys.modules.items()):\n    print(name, vars(module))\n"
        "print(globals(), dict(os.environ), sys.argv)\nprint(open('/proc/self/environ').read())"
    )
    run = runner.finish()
    assert runner.nonce not in run.out
    listed = runner.run(
        "import subprocess\nsubprocess.run('readlink /proc/self/fd/0; ls /proc/self/fd', shell=True)"
    ).out
    assert listed.splitlines()[:4] == ["/dev/null", "0", "1", "2"]
    assert len(listed.splitlines()) <= 5


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("def f():\n    f()\nf()", "RecursionError"),
        ("x = 'a' * (1 << 60)", "MemoryError"),
        ("(" * 500 + ")" * 500, "Error"),
        ("raise BaseException('base')", "BaseException: base"),
        (
            "class Odd(Exception):\n    def __str__(self): raise ValueError\n"
            "    def __bool__(self): raise ValueError\nraise Odd",
            "Odd",
        ),
        ("import asyncio\nraise asyncio.CancelledError('own')", "CancelledError"),
        ("import sys\nsys.path.clear(); sys.meta_path.clear()\n1 / 0", "ZeroDivisionError"),
        ("import sys\nsys.settrace(lambda *_: 1 / 0)\n[].append\nlen('x')\n(lambda: 0)()", "ZeroDivisionError"),
    ],
    ids=["recursion", "memory", "nesting", "base", "odd", "cancelled", "imports", "trace"],
)
def test_any_error_is_reported_and_the_runner_continues(runner: Runner, code: str, error: str) -> None:
    runner.run("kept = 1")
    run = runner.run(code)
    assert run.status == "error"
    assert error in run.err
    assert runner.run("kept").result == "1"


def test_variables_are_kept_although_they_use_all_memory_of_the_process(runner: Runner) -> None:
    run = runner.run(
        "import resource\nresource.setrlimit(resource.RLIMIT_DATA, (64 << 20, 64 << 20))\nheld, size = [], 1 << 20\n"
        "while True:\n    try:\n        held.append(bytes(size))\n    except MemoryError:\n"
        "        if size < 10_000: raise\n        size //= 2"
    )
    assert run.err.endswith("MemoryError\n")
    assert int(runner.run("len(held)").result or 0) > 10
    runner.run("held.clear()")
    assert runner.run("held = len(bytes(1 << 20))\nheld").result == str(1 << 20)


@pytest.mark.parametrize(
    "code",
    [
        "import os\ndef read(*_): raise MemoryError\nos.read = read",
        "import os, threading, time\ndef scandir(*_): raise MemoryError\nos.scandir = scandir\n"
        "threading.Thread(target=time.sleep, args=(1000,)).start()",
    ],
    ids=["no memory for the request", "no memory for the report"],
)
def test_a_runner_without_memory_ends_and_says_so(runner: Runner, code: str) -> None:
    with pytest.raises(RunnerEnded, match=r"exit code 1; .*the code left the interpreter no memory"):
        list(map(runner.run, (code, "1")))


def test_objects_of_an_error_are_freed_after_its_run(runner: Runner) -> None:
    runner.run(
        "import gc, weakref\ngc.disable()\nclass Big: pass\n"
        "def fail():\n    global seen\n    big = Big()\n    seen = weakref.ref(big)\n    1 / 0"
    )
    runner.run("fail()")
    assert runner.run("seen() is None").result == "True"
