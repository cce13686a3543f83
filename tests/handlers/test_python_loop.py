"""The event loop of a session: as in a notebook, code is inside one; as in a script, it runs loops of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .driver import Runner
from .python_environment import python

JOB = "import asyncio\nasync def job(value='done'):\n    await asyncio.sleep(0)\n    return value\n"


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    with python(tmp_path) as started:
        yield started


@pytest.mark.parametrize(
    "create",
    [
        "asyncio.create_task(job())",
        "asyncio.ensure_future(job())",
        "asyncio.gather(job())",
        "asyncio.get_event_loop().create_task(job())",
        "asyncio.get_running_loop().create_task(job())",
    ],
)
def test_what_is_created_without_await_is_awaited_in_a_later_run(runner: Runner, create: str) -> None:
    assert runner.run(f"{JOB}task = {create}").status == "ok"
    assert runner.run("await task").result in ("'done'", "['done']")


@pytest.mark.parametrize(
    "start",
    [
        "asyncio.run(job())",
        "asyncio.get_event_loop().run_until_complete(job())",
        "asyncio.new_event_loop().run_until_complete(job())",
        "loop = asyncio.new_event_loop(); asyncio.set_event_loop(loop); loop.run_until_complete(job())",
        "(lambda run: run(job()))(asyncio.Runner().run if hasattr(asyncio, 'Runner') else asyncio.run)",
    ],
)
def test_loops_of_the_code_nest_in_every_run(runner: Runner, start: str) -> None:
    *before, last = start.split("; ")
    inside = "for _ in range(await job(2)):\n    asyncio.run(job())"
    for first in ("", "await job()", inside, "await asyncio.create_task(job())", f"asyncio.run(job())\n{start}"):
        run = runner.run("\n".join((JOB, first, *before, f"value = {last}", "value")))
        assert (run.result, run.err) == ("'done'", ""), first
    assert runner.run("await asyncio.create_task(job('the same loop again'))").result == "'the same loop again'"


def test_the_loop_that_awaits_cannot_be_run_inside_itself(runner: Runner) -> None:
    run = runner.run(f"{JOB}for _ in range(await job(2)):\n    asyncio.get_event_loop().run_until_complete(job())")
    assert "RuntimeError: This event loop is already running" in run.err


@pytest.mark.parametrize(
    "end",
    ["asyncio.run(job())", "asyncio.set_event_loop(None)", "asyncio.get_event_loop().close()"],
)
def test_there_is_a_current_loop_after_one_is_closed_or_reset(runner: Runner, end: str) -> None:
    runner.run(f"{JOB}{end}")
    assert runner.run("asyncio.get_event_loop().run_until_complete(job())").result == "'done'"
    assert runner.run("await job()").result == "'done'"


def test_only_the_thread_of_the_code_is_inside_the_loop(runner: Runner) -> None:
    runner.run(JOB)
    run = runner.run("await asyncio.to_thread(asyncio.get_running_loop)")
    assert run.err.endswith("RuntimeError: no running event loop\n")
    assert runner.run("await asyncio.to_thread(asyncio.run, job())").result == "'done'"


def test_a_loop_that_runs_in_a_thread_is_left_to_it(runner: Runner) -> None:
    runner.run(
        f"{JOB}import threading\nloop = asyncio.get_event_loop()\nlater = loop.create_task(asyncio.sleep(60))\n"
        "began = threading.Event()\nloop.call_soon(began.set)\n"
        "threading.Thread(target=loop.run_forever, daemon=True).start()\nbegan.wait()"
    )
    assert runner.run("asyncio.run_coroutine_threadsafe(job(), loop).result()").result == "'done'"
    assert runner.run("await job()").result == "'done'"


def test_a_loop_cannot_run_inside_another_task_than_that_of_the_code(runner: Runner) -> None:
    runner.run(
        f"{JOB}async def nest():\n    coroutine = job()\n    try:\n        asyncio.run(coroutine)\n"
        "    finally:\n        coroutine.close()"
    )
    assert "cannot be called from a running event loop" in runner.run("await asyncio.create_task(nest())").err


def test_tasks_go_on_in_runs_that_await_nothing(runner: Runner) -> None:
    runner.run(f"{JOB}task = asyncio.create_task(job())")
    assert runner.run("task.done()").result == "True"


def test_a_forked_process_has_a_loop_of_its_own(runner: Runner) -> None:
    runner.run(
        f"{JOB}import multiprocessing\nqueue = multiprocessing.get_context('fork').SimpleQueue()\n"
        "def work():\n    queue.put(asyncio.get_event_loop().run_until_complete(job()))"
    )
    assert (
        runner.run(
            "process = multiprocessing.get_context('fork').Process(target=work)\nprocess.start()\n"
            "process.join()\nqueue.get()"
        ).result
        == "'done'"
    )
    # Otherwise the child would have taken the loop's own socket from the selector that both share.
    assert runner.run("await asyncio.get_running_loop().run_in_executor(None, str, 5)").result == "'5'"


def test_variables_of_the_context_are_kept_by_code_that_awaits(runner: Runner) -> None:
    if runner.run("import sys\nsys.version_info >= (3, 11)").result == "False":
        pytest.skip("before Python 3.11, the context of a task cannot be reached")
    run = runner.run(f"{JOB}import contextvars\nkept = contextvars.ContextVar('kept')\nawait job()\nkept.set(1)\nNone")
    assert run.status == "ok"
    runner.run("kept.set(kept.get() + 1)\nawait job()")
    assert runner.run("kept.get()").result == "2"


def test_an_interrupt_stops_a_loop_inside_code_that_awaits(runner: Runner) -> None:
    runner.run(JOB)
    runner.send("await job()\nprint('started')\nasyncio.run(asyncio.sleep(60))")
    runner.wait_for("started")
    runner.interrupt()
    run = runner.finish()
    assert (run.exit_code, run.interrupted) == (130, True)
    assert "sandbox_" not in run.err
    assert runner.run("await job()").result == "'done'"


def test_a_coroutine_that_was_never_awaited_is_reported_as_python_does(runner: Runner) -> None:
    runner.run(f"{JOB}job()")
    for code in ("1", "job() and None"):
        err = runner.run(code).err
        assert err.startswith(("sys:1: RuntimeWarning: coroutine 'job' was never", f"<cell {runner.cell}>:1: Runtime"))
