"""What sessions keep, what they lose, and that the loss is reported."""

import anyio
import pytest

from llm_sandbox_mcp.base.errors import PolicyDenied
from llm_sandbox_mcp.base.results import Execution
from llm_sandbox_mcp.service import Service

from .asking import execute, open_session

pytestmark = pytest.mark.anyio

DEAF = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('deaf')\nwhile True: pass"
"""Code that ignores interrupts."""
LONG = {"limits": {"grace": 60.0}}
"""A grace so long that no test waits for its end."""


async def test_state_is_kept_between_runs_and_after_an_error(service: Service) -> None:
    first = await execute(service, "x = 41")
    failed = await execute(service, "x += 1\nraise ValueError('oops')", session_id=first.session_id)
    assert (failed.status, failed.exit_code, failed.session_state) == ("error", 1, "kept")
    assert "ValueError: oops" in failed.stderr.text
    last = await execute(service, "x", session_id=first.session_id)
    assert (last.status, last.result, last.session_id) == ("ok", "42", first.session_id)


async def test_languages_share_the_files_of_a_session(service: Service) -> None:
    first = await execute(service, "open('shared', 'w').write('from python')\nNone")
    second = await execute(service, "cat shared", language="bash", session_id=first.session_id)
    assert second.stdout.text == "from python"


async def test_code_that_stops_at_a_timeout_keeps_its_state(service: Service) -> None:
    first = await execute(service, "x = 1\nimport time\nprint('began')\ntime.sleep(100)", timeout=0.5)
    assert (first.status, first.exit_code, first.session_state, first.stdout.text) == (
        "timeout",
        130,
        "kept",
        "began\n",
    )
    assert (await execute(service, "x", session_id=first.session_id)).result == "1"


@pytest.mark.parametrize("seconds", [0.5, 100])
async def test_code_that_cleans_up_when_it_is_interrupted_keeps_its_state(service: Service, seconds: float) -> None:
    code = f"""
import time
try:
    time.sleep(100)
except KeyboardInterrupt:
    x = 1
    time.sleep({seconds})
"""
    first = await execute(service, code, timeout=0.5)
    assert (first.status, first.exit_code, first.session_state) == ("timeout", 130, "kept"), first
    assert (await execute(service, "x", session_id=first.session_id)).result == "1"


@pytest.mark.parametrize("changes", [{"limits": {"grace": 0.3}}], ids=["grace"])
async def test_a_kill_loses_state_and_the_next_run_says_so(service: Service) -> None:
    first = await execute(service, "x = 1\n" + DEAF, timeout=0.5)
    assert (first.status, first.exit_code, first.session_state) == ("timeout", 137, "fresh")
    second = await execute(service, "'x' in globals()", session_id=first.session_id)
    assert second.result == "False"
    assert any("started fresh" in note for note in second.notes)
    third = await execute(service, "1", session_id=first.session_id)
    assert third.notes == ()


async def test_output_is_capped_at_the_limit(service: Service) -> None:
    result = await execute(service, "while True: print('x' * 100)")
    assert result.status == "output_limit"
    assert any("1MiB" in note for note in result.notes)


async def started(service: Service, results: list[Execution], code: str, session_id: str = "") -> None:
    results.append(await execute(service, code, session_id=session_id))


async def test_two_callers_of_one_session_take_turns(service: Service) -> None:
    session = (await execute(service, "log = []")).session_id
    code = "import time\nlog.append('in')\ntime.sleep(0.05)\nlog.append('out')"
    results: list[Execution] = []
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(started, service, results, code, session)
    assert {result.status for result in results} == {"ok"}
    assert (await execute(service, "log == ['in', 'out'] * 5", session_id=session)).result == "True"


async def test_an_interrupt_from_outside_gives_cancelled_and_keeps_the_session(service: Service) -> None:
    session = (await execute(service, "x = 1")).session_id

    async def interrupt(stream: str, text: str) -> None:
        await service.sessions.interrupt(session)

    with anyio.fail_after(30):
        result = await execute(
            service, "import time\nprint('began')\ntime.sleep(100)", session_id=session, on_output=interrupt
        )
    assert (result.status, result.session_state) == ("cancelled", "kept")
    assert (await execute(service, "x", session_id=session)).result == "1"


async def test_a_cancelled_call_interrupts_the_code_and_keeps_the_session(service: Service) -> None:
    session = (await execute(service, "x = 1")).session_id
    with anyio.fail_after(30):
        with anyio.CancelScope() as scope:

            async def cancel(stream: str, text: str) -> None:
                scope.cancel()

            await execute(
                service, "import time\nx += 1\nprint('began')\ntime.sleep(100)", session_id=session, on_output=cancel
            )
        assert scope.cancelled_caught
        assert (await execute(service, "x", session_id=session)).result == "2"


async def test_the_interrupt_of_a_cancelled_call_never_hits_the_next_run(service: Service) -> None:
    session_id = (await execute(service, "x = 1")).session_id
    cancelled = 0
    for number in range(100):
        # The times are chosen so that some runs have just ended by themselves when they are interrupted.
        with anyio.move_on_after(number % 20 * 0.0003) as scope:
            await execute(service, "x", session_id=session_id)
        cancelled += scope.cancelled_caught
        after = await execute(service, "x", session_id=session_id)
        assert (after.status, after.result) == ("ok", "1"), after
    assert cancelled


async def test_a_reset_keeps_the_id_and_nothing_else(service: Service) -> None:
    session = (await execute(service, "x = 1\nopen('file', 'w').close()")).session_id
    await service.sessions.reset(session)
    result = await execute(service, "import os\n'x' in globals() or os.path.exists('file')", session_id=session)
    assert (result.result, result.notes) == ("False", ())


async def test_a_caller_lowers_limits_of_a_new_session_and_of_one_run(service: Service) -> None:
    fills = "open('large', 'wb').write(bytes(3 << 20))"
    first = await execute(service, fills, limits={"file_size": 2 << 20, "output": 1000})
    assert first.status == "file_limit", first
    printed = await execute(service, "print('x' * 2000)", session_id=first.session_id)
    assert printed.status == "ok", "its output limit was lowered for one run only"
    again = await execute(service, fills, session_id=first.session_id)
    assert again.status == "file_limit", "its sandbox keeps the limits that it was made with"
    assert (await execute(service, fills)).status == "ok"
    slow = await execute(service, "import time\ntime.sleep(100)", limits={"timeout": 0.3})
    assert slow.status == "timeout", slow
    short = open_session(service, limits={"timeout": 5})
    with pytest.raises(PolicyDenied, match="at most 5, the session's limit; got 6"):
        await execute(service, "1", session_id=short, timeout=6)


@pytest.mark.parametrize("changes", [LONG], ids=["grace"])
async def test_a_caller_lowers_the_grace_of_one_run_and_of_a_new_session(service: Service) -> None:
    with anyio.fail_after(45):
        first = await execute(service, DEAF, timeout=0.5, limits={"grace": 0.3})
        session = open_session(service, limits={"grace": 0.3})
        second = await execute(service, DEAF, timeout=0.5, session_id=session)
    for killed in (first, second):
        assert (killed.status, killed.exit_code, killed.session_state) == ("timeout", 137, "fresh"), killed


@pytest.mark.parametrize("changes", [LONG], ids=["grace"])
async def test_a_cancelled_call_of_code_that_is_deaf_ends_with_the_grace_of_its_run(service: Service) -> None:
    session = (await execute(service, "x = 1")).session_id
    with anyio.fail_after(45):
        with anyio.CancelScope() as scope:

            async def cancel(stream: str, text: str) -> None:
                scope.cancel()

            await execute(service, DEAF, session_id=session, limits={"grace": 0.3}, on_output=cancel)
        assert scope.cancelled_caught
        again = await execute(service, "'x' in globals()", session_id=session)
    assert again.result == "False"
    assert any("started fresh" in note for note in again.notes), again
