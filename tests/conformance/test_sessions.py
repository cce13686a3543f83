"""Sessions, on every backend: what is kept, what is lost, and that it is said."""

import anyio
import pytest

from llm_sandbox_mcp.errors import CapacityReached, InvalidArgument, PolicyDenied, UnknownSession
from llm_sandbox_mcp.results import Execution
from llm_sandbox_mcp.service import Service

pytestmark = pytest.mark.anyio

DEAF = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('deaf')\nwhile True: pass"
"""Code that no interrupt ends."""
LONG = {"limits": {"grace": 60.0}}
"""A grace that no test waits for."""


async def test_state_is_kept_between_runs_and_after_an_error(service: Service) -> None:
    first = await service.execute("x = 41")
    failed = await service.execute("x += 1\nraise ValueError('oops')", session_id=first.session_id)
    assert (failed.status, failed.exit_code, failed.session_state) == ("error", 1, "kept")
    assert "ValueError: oops" in failed.stderr.text
    last = await service.execute("x", session_id=first.session_id)
    assert (last.status, last.result, last.session_id) == ("ok", "42", first.session_id)


async def test_languages_share_the_files_of_a_session(service: Service) -> None:
    first = await service.execute("open('shared', 'w').write('from python')\nNone")
    second = await service.execute("cat shared", language="bash", session_id=first.session_id)
    assert second.stdout.text == "from python"


async def test_a_timeout_that_is_answered_keeps_state(service: Service) -> None:
    first = await service.execute("x = 1\nimport time\nprint('began')\ntime.sleep(100)", timeout=0.5)
    assert (first.status, first.exit_code, first.session_state, first.stdout.text) == (
        "timeout",
        130,
        "kept",
        "began\n",
    )
    assert (await service.execute("x", session_id=first.session_id)).result == "1"


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
    first = await service.execute(code, timeout=0.5)
    assert (first.status, first.exit_code, first.session_state) == ("timeout", 130, "kept"), first
    assert (await service.execute("x", session_id=first.session_id)).result == "1"


@pytest.mark.parametrize("changes", [{"limits": {"grace": 0.3}}], ids=["grace"])
async def test_a_kill_loses_state_and_the_next_run_says_so(service: Service) -> None:
    first = await service.execute("x = 1\n" + DEAF, timeout=0.5)
    assert (first.status, first.exit_code, first.session_state) == ("timeout", 137, "fresh")
    second = await service.execute("'x' in globals()", session_id=first.session_id)
    assert second.result == "False"
    assert any("started fresh" in note for note in second.notes)
    third = await service.execute("1", session_id=first.session_id)
    assert third.notes == ()


async def test_output_is_capped_at_the_limit(service: Service) -> None:
    result = await service.execute("while True: print('x' * 100)")
    assert result.status == "output_limit"
    assert any("1MiB" in note for note in result.notes)


async def test_a_run_without_a_session_kept_leaves_none(service: Service) -> None:
    result = await service.execute("1", keep_session=False)
    assert result.session_state == "ended"
    assert service.list_sessions() == ()
    with pytest.raises(UnknownSession):
        await service.execute("1", session_id=result.session_id)


@pytest.mark.parametrize("session_id", ["x", "0" * 32, "../..", " ", "\0"])
async def test_an_unknown_id_is_one_clear_error(service: Service, session_id: str) -> None:
    with pytest.raises(UnknownSession, match="call without session_id to open a new one") as raised:
        await service.execute("1", session_id=session_id)
    assert "\n" not in str(raised.value)


async def test_a_closed_session_is_gone(service: Service) -> None:
    first = await service.execute("1")
    await service.close_session(first.session_id)
    with pytest.raises(UnknownSession, match="closed"):
        await service.close_session(first.session_id)


@pytest.mark.parametrize("changes", [{"sessions": {"idle_timeout": 0.2}}])
async def test_an_idle_session_expires_and_a_busy_one_does_not(service: Service) -> None:
    idle = await service.execute("1")
    busy = await service.execute("import time\ntime.sleep(0.6)\n'done'")
    assert busy.result == "'done'"
    with pytest.raises(UnknownSession, match="expired after 200ms"):
        await service.execute("1", session_id=idle.session_id)


@pytest.mark.parametrize("changes", [{"sessions": {"max": 2}}])
async def test_the_least_recently_used_idle_session_makes_room(service: Service) -> None:
    first, second = await service.execute("1"), await service.execute("2")
    await service.execute("3", session_id=first.session_id)
    third = await service.execute("4")
    assert {info.id for info in service.list_sessions()} == {first.session_id, third.session_id}
    with pytest.raises(UnknownSession):
        await service.execute("5", session_id=second.session_id)


async def started(service: Service, results: list[Execution], code: str, session_id: str = "") -> None:
    results.append(await service.execute(code, session_id=session_id))


@pytest.mark.parametrize("changes", [{"sessions": {"max": 1}}])
async def test_when_all_are_busy_none_is_evicted(service: Service) -> None:
    results: list[Execution] = []
    printed = anyio.Event()

    async def begun(stream: str, text: str) -> None:
        printed.set()

    async def run() -> None:
        results.append(await service.execute("import time\nprint('x')\ntime.sleep(100)", on_output=begun))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await printed.wait()
            with pytest.raises(CapacityReached, match="all 1 sessions are busy"):
                await service.execute("1")
            await service.interrupt_session(service.list_sessions()[0].id)
    assert results[0].status == "cancelled"


async def test_two_callers_of_one_session_take_turns(service: Service) -> None:
    session = (await service.execute("log = []")).session_id
    code = "import time\nlog.append('in')\ntime.sleep(0.05)\nlog.append('out')"
    results: list[Execution] = []
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(started, service, results, code, session)
    assert {result.status for result in results} == {"ok"}
    assert (await service.execute("log == ['in', 'out'] * 5", session_id=session)).result == "True"


async def test_an_interrupt_from_outside_gives_cancelled_and_keeps_the_session(service: Service) -> None:
    session = (await service.execute("x = 1")).session_id

    async def interrupt(stream: str, text: str) -> None:
        await service.interrupt_session(session)

    with anyio.fail_after(30):
        result = await service.execute(
            "import time\nprint('began')\ntime.sleep(100)", session_id=session, on_output=interrupt
        )
    assert (result.status, result.session_state) == ("cancelled", "kept")
    assert (await service.execute("x", session_id=session)).result == "1"


async def test_a_cancelled_call_interrupts_the_code_and_keeps_the_session(service: Service) -> None:
    session = (await service.execute("x = 1")).session_id
    with anyio.fail_after(30):
        with anyio.CancelScope() as scope:

            async def cancel(stream: str, text: str) -> None:
                scope.cancel()

            await service.execute(
                "import time\nx += 1\nprint('began')\ntime.sleep(100)", session_id=session, on_output=cancel
            )
        assert scope.cancelled_caught
        assert (await service.execute("x", session_id=session)).result == "2"


async def test_the_interrupt_of_a_call_that_was_given_up_never_meets_the_next_run(service: Service) -> None:
    session_id = (await service.execute("x = 1")).session_id
    given_up = 0
    for number in range(100):
        # Such that some of them have just ended by themselves when they are interrupted.
        with anyio.move_on_after(number % 20 * 0.0003) as scope:
            await service.execute("x", session_id=session_id)
        given_up += scope.cancelled_caught
        after = await service.execute("x", session_id=session_id)
        assert (after.status, after.result) == ("ok", "1"), after
    assert given_up


async def test_a_reset_keeps_the_id_and_nothing_else(service: Service) -> None:
    session = (await service.execute("x = 1\nopen('file', 'w').close()")).session_id
    await service.reset_session(session)
    result = await service.execute("import os\n'x' in globals() or os.path.exists('file')", session_id=session)
    assert (result.result, result.notes) == ("False", ())


async def test_an_error_in_the_scope_of_the_service_comes_out_as_it_is(backend_name: str, service: Service) -> None:
    from llm_sandbox_mcp.wiring import open_service

    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the scope's end is the matter
        async with open_service(service.profile) as other:
            await other.execute("1")
            raise ZeroDivisionError


@pytest.mark.parametrize("changes", [{"sessions": {"starts_per_second": 0.02}}])
async def test_sandboxes_that_are_started_too_often_are_refused_with_the_time_to_wait(service: Service) -> None:
    session = (await service.execute("1")).session_id
    refusal = r"at most 0\.02 times a second; try again in \d.*, or raise sessions\.starts_per_second in the profile"
    with pytest.raises(CapacityReached, match=refusal):
        await service.execute("1")
    assert (await service.execute("2", session_id=session)).result == "2"
    # A session that lost its sandbox, or was reset, needs one more.
    await service.reset_session(session)
    with pytest.raises(CapacityReached, match=refusal):
        await service.execute("1", session_id=session)
    assert session in {info.id for info in service.list_sessions()}


async def test_a_caller_lowers_limits_of_a_new_session_and_of_one_run(service: Service) -> None:
    fills = "open('large', 'wb').write(bytes(3 << 20))"
    first = await service.execute(fills, limits={"file_size": 2 << 20, "output": 1000})
    assert first.status == "file_limit", first
    printed = await service.execute("print('x' * 2000)", session_id=first.session_id)
    assert printed.status == "ok", "its output was lowered for one run"
    again = await service.execute(fills, session_id=first.session_id)
    assert again.status == "file_limit", "its sandbox has what it was made with"
    assert (await service.execute(fills)).status == "ok"
    slow = await service.execute("import time\ntime.sleep(100)", limits={"timeout": 0.3})
    assert slow.status == "timeout", slow
    short = service.open_session(limits={"timeout": 5})
    with pytest.raises(PolicyDenied, match="at most 5, the session's limit; got 6"):
        await service.execute("1", session_id=short, timeout=6)


@pytest.mark.parametrize("changes", [LONG], ids=["grace"])
async def test_a_caller_lowers_the_grace_of_one_run_and_of_a_new_session(service: Service) -> None:
    with anyio.fail_after(45):
        first = await service.execute(DEAF, timeout=0.5, limits={"grace": 0.3})
        session = service.open_session(limits={"grace": 0.3})
        second = await service.execute(DEAF, timeout=0.5, session_id=session)
    for killed in (first, second):
        assert (killed.status, killed.exit_code, killed.session_state) == ("timeout", 137, "fresh"), killed


@pytest.mark.parametrize("changes", [LONG], ids=["grace"])
async def test_a_cancelled_call_of_code_that_is_deaf_ends_with_the_grace_of_its_run(service: Service) -> None:
    session = (await service.execute("x = 1")).session_id
    with anyio.fail_after(45):
        with anyio.CancelScope() as scope:

            async def cancel(stream: str, text: str) -> None:
                scope.cancel()

            await service.execute(DEAF, session_id=session, limits={"grace": 0.3}, on_output=cancel)
        assert scope.cancelled_caught
        again = await service.execute("'x' in globals()", session_id=session)
    assert again.result == "False"
    assert any("started fresh" in note for note in again.notes), again


@pytest.mark.parametrize(
    ("limits", "error", "said"),
    [
        ({"memory": 1 << 50}, PolicyDenied, "memory must be at least 8388608 and at most"),
        ({"memory": 1}, PolicyDenied, "memory must be at least 8388608"),
        ({"pids": 7}, PolicyDenied, "pids must be at least 8"),
        ({"cpu_time": 1e9}, PolicyDenied, "cpu_time must be above 0 and at most"),
        ({"grace": 2.1}, PolicyDenied, "grace must be above 0 and at most 2, the profile's limit; got 2.1"),
        ({"files": 0}, PolicyDenied, "files must be above 0"),
        ({"pids": 8.5}, PolicyDenied, "pids must be a whole number"),
        ({"model_config": 1}, InvalidArgument, "'model_config' is no limit; there are: memory, "),
        ({"timeout": "5s"}, InvalidArgument, "timeout must be a number of seconds; got '5s'"),
        ({"memory": "1MiB"}, InvalidArgument, "memory must be a number of bytes; got '1MiB'"),
        ({"pids": True}, InvalidArgument, "pids must be a number of processes and threads; got 'True'"),
        ({"disk": 10**400}, PolicyDenied, "the profile's limit; got a number out of all bounds"),
        ({"policy": 1}, InvalidArgument, "'policy' is no limit; there are: memory, "),
        ({"narrow\n": 1}, InvalidArgument, r"'narrow\\n' is no limit; there are: memory, "),
    ],
)
async def test_limits_that_would_be_raised_or_are_none_are_refused(
    service: Service, limits: dict[str, float], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        await service.execute("1", limits=limits)
    assert service.list_sessions() == ()


async def test_limits_of_a_sandbox_that_is_there_stay_as_they_are(service: Service) -> None:
    session = (await service.execute("1")).session_id
    with pytest.raises(InvalidArgument, match="disk, pids can be lowered for a new session only; leave session_id out"):
        await service.execute("1", session_id=session, limits={"pids": 1, "disk": 1, "cpu_time": 1})
