"""Work that goes on without its caller: what is known of it meanwhile, how it ends, and how long it is kept."""

import gc
from contextlib import suppress

import anyio
import pytest

from llm_sandbox_mcp.base.errors import CapacityReached, StartFailed, UnknownRun
from llm_sandbox_mcp.base.principal import USER
from llm_sandbox_mcp.base.results import Execution, StreamName
from llm_sandbox_mcp.runs.requests import RunRequest
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.service.ask import Ask
from llm_sandbox_mcp.service.work import Listener, Work
from llm_sandbox_mcp.testing import asking
from llm_sandbox_mcp.testing.asking import open_session
from tests.memory.backend import PROGRAMS, MemoryBackend, MemoryProcess

from .conftest import run

pytestmark = pytest.mark.anyio

IDLE = 600.0
"""Seconds after which a session without use expires."""


@pytest.fixture
def changes() -> dict[str, dict[str, object]]:
    return {"sessions": {"max": 6, "idle_timeout": IDLE}}


async def start(service: Service, code: str, session_id: str = "", timeout: float = 30) -> Work:
    return await asking.start(service, code, language="script", session_id=session_id, timeout=timeout)


async def ended(found: Work) -> Execution:
    await found.wait()
    return found.execution


async def test_a_run_goes_on_after_its_caller_has_left(service: Service) -> None:
    found = await start(service, "print one\nsleep 10\nprint two\nset x 1\nget x")
    assert await found.wait(5) is None
    assert found.state == "running"
    assert service.door.get(found.id) is found
    assert service.door.of_session(found.session_id) == (found,)
    execution = await ended(found)
    assert (execution.status, execution.stdout.text, execution.result) == ("ok", "one\ntwo\n", "1")
    assert await found.wait() is execution  # also a second time
    service.door.forget(found)
    with pytest.raises(UnknownRun):
        service.door.get(found.id)


async def test_output_is_read_once_and_passed_on_to_those_who_wait(service: Service) -> None:
    heard: list[tuple[StreamName, str]] = []

    async def hear(stream: StreamName, text: str) -> None:
        heard.append((stream, text))

    found = await start(service, "print one\nsleep 10\nprint two\ncomplain three\nsleep 10\nprint four")
    assert await found.wait(5) is None
    assert [output.text for output in found.read()] == ["one\n", ""]
    assert [output.text for output in found.read()] == ["", ""]
    assert await found.wait(10, Listener(hear)) is None
    assert heard == [("stdout", "two\n"), ("stderr", "three\n")]
    assert [output.text for output in found.read()] == ["two\n", "three\n"]
    await ended(found)
    assert [output.text for output in found.read()] == ["four\n", ""]
    assert len(heard) == 2


async def test_a_caller_that_is_cancelled_leaves_its_run(service: Service) -> None:
    found = await start(service, "sleep 10\nprint done")
    with anyio.move_on_after(5) as scope:
        await found.wait()
    assert scope.cancelled_caught
    assert (await ended(found)).stdout.text == "done\n"


async def test_a_cancelled_run_keeps_its_session_and_its_output(service: Service) -> None:
    found = await start(service, "set x 1\nprint one\nsleep 25")
    assert await found.wait(5) is None
    found.cancel()
    execution = await ended(found)
    assert (execution.status, execution.stdout.text, execution.session_state) == ("cancelled", "one\n", "kept")
    assert (await run(service, "get x", session_id=found.session_id)).result == "1"
    found.cancel()  # nothing happens
    assert (await run(service, "get x", session_id=found.session_id)).result == "1"


async def test_only_a_run_that_was_cancelled_counts_as_cancelled(service: Service, engine: MemoryBackend) -> None:
    for code, cancelled in (("sleep 25", True), ("print one", False), ("fail", False)):
        found = await start(service, code)
        assert await found.wait(0) is None
        assert not found.cancelled
        if cancelled:
            found.cancel()
        await ended(found)
        assert found.cancelled == cancelled
    engine.failure = StartFailed("no sandbox today; try tomorrow")
    failed = await start(service, "print one")
    with pytest.raises(StartFailed):
        await failed.wait()
    assert failed.ended and not failed.cancelled


async def test_a_run_that_waits_for_its_session_can_be_taken_back(service: Service) -> None:
    first = await start(service, "set x 1\nsleep 25")
    second = await start(service, "set x 2", first.session_id)
    assert await second.wait(5) is None
    assert (first.state, second.state) == ("running", "waiting")
    second.cancel()
    execution = await ended(second)
    assert (execution.status, execution.notes) == ("cancelled", ("it was cancelled before its code had begun",))
    assert execution.duration == 0
    assert not first.ended
    first.cancel()
    await ended(first)
    assert (await run(service, "get x", session_id=first.session_id)).result == "1"


async def test_a_new_session_stays_if_its_caller_was_told_its_id(service: Service) -> None:
    for waits in (True, False):
        found = await start(service, "print one")
        if waits:
            assert await found.wait(0) is None
        found.cancel()
        await ended(found)
        assert (found.session_id in {info.id for info in service.sessions.list()}) == waits


async def test_a_caller_that_is_gone_leaves_only_runs_that_can_be_found(service: Service) -> None:
    session = (await run(service, "set x 1")).session_id
    named = await start(service, "sleep 10\nget x", session)
    told = await start(service, "sleep 10")
    assert await told.wait(0) is None
    unknown = await start(service, "sleep 10")
    await anyio.sleep(5)
    unbegun = await start(service, "sleep 10")
    assert (unknown.state, unbegun.state) == ("running", "waiting")
    for left in (named, told, unknown, unbegun):
        service.door.leave(left)
    assert (await ended(named)).result == "1"
    assert (await ended(told)).status == "ok"
    for left in (unknown, unbegun):
        assert (await ended(left)).status == "cancelled"
    assert {info.id for info in service.sessions.list()} == {session, told.session_id}
    service.door.leave(unknown)  # nothing happens


async def test_the_timeout_bounds_the_run(service: Service) -> None:
    found = await start(service, "print one\nsleep 1000", timeout=20)
    assert (await ended(found)).status == "timeout"
    assert 20 <= found.duration < 30


async def test_a_run_whose_session_is_closed_ends(service: Service) -> None:
    found = await start(service, "sleep 25")
    queued = await start(service, "sleep 25", found.session_id)
    assert await found.wait(5) is None
    await service.sessions.close(found.session_id)
    execution = await ended(found)
    assert (execution.status, execution.session_state) == ("cancelled", "ended")
    with pytest.raises(Exception, match="is not open"):
        await queued.wait()


async def test_the_error_of_a_run_reaches_who_waits_for_it(service: Service, engine: MemoryBackend) -> None:
    engine.failure = StartFailed("no sandbox today", "try tomorrow")
    found = await start(service, "print one")
    for _ in range(2):
        with pytest.raises(StartFailed, match="no sandbox today"):
            await found.wait()


async def test_only_an_error_that_nobody_foresaw_is_logged(
    service: Service, engine: MemoryBackend, caplog: pytest.LogCaptureFixture
) -> None:
    async def stumble(stream: StreamName, text: str) -> None:
        raise RuntimeError("unforeseen")

    found = await start(service, "print one")
    with pytest.raises(RuntimeError, match="unforeseen"):
        await found.wait(listener=Listener(stumble))
    engine.failure = StartFailed("no sandbox today; try tomorrow")
    failed = await start(service, "print one")
    with pytest.raises(StartFailed):
        await failed.wait()
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["unforeseen"]


async def test_results_are_kept_as_long_as_a_session_without_use(service: Service) -> None:
    found = await start(service, "print one")
    await ended(found)
    await anyio.sleep(IDLE - 60)
    assert service.door.get(found.id) is found
    await anyio.sleep(120)
    with pytest.raises(UnknownRun, match="is not known"):
        service.door.get(found.id)


async def test_only_the_latest_results_are_kept(service: Service) -> None:
    runs = [await start(service, "print one")]
    session = runs[0].session_id
    for _ in range(99):
        await ended(runs[-1])
        runs.append(await start(service, "print one", session))
    await ended(runs[-1])
    assert service.door.of_session(session) == tuple(runs[-64:])


async def many(service: Service, number: int, session: str = "", origin: tuple[str, ...] = ()) -> list[Work]:
    """Runs that ended one after the other, in one session or each in one that ends with it."""
    runs = []
    for _ in range(number):
        keep = bool(session)
        started = asking.start(
            service, "print one", origin=origin, language="script", session_id=session, keep_session=keep
        )
        runs.append(await started)
        await ended(runs[-1])
        await anyio.sleep(0.1)  # of the clock that jumps: only so many sandboxes may start in a second
    return runs


async def test_results_of_one_session_do_not_replace_those_of_another(service: Service) -> None:
    own = await start(service, "print mine")
    await ended(own)
    theirs = await many(service, 1)
    runs = await many(service, 200, (await run(service, "print one")).session_id)
    assert service.door.get(own.id) is own
    assert service.door.get(theirs[0].id) is theirs[0]
    assert service.door.of_session(runs[0].session_id) == tuple(runs[-62:])


async def test_results_of_sessions_that_ended_do_not_replace_those_of_an_open_one(service: Service) -> None:
    own = await start(service, "print mine")
    await ended(own)
    latest = (await many(service, 200))[-1]
    assert service.door.get(own.id) is own
    assert service.door.get(latest.id) is latest


@pytest.mark.parametrize("other", [("10.0.0.2", ""), ("10.0.0.1", "b")], ids=["address", "connection"])
async def test_results_that_one_caller_leaves_do_not_replace_the_only_one_of_another(
    service: Service, other: tuple[str, ...]
) -> None:
    own = (await many(service, 1, origin=other))[0]
    for connection in range(3):
        left = await many(service, 50, origin=("10.0.0.1", f"a{connection}"))
    assert service.door.get(own.id) is own
    assert service.door.get(left[-1].id) is left[-1]


async def test_many_connections_of_one_address_do_not_replace_the_results_of_another(service: Service) -> None:
    own = await many(service, 2, origin=("10.0.0.2", "b"))
    for connection in range(100):
        await many(service, 1, origin=("10.0.0.1", f"a{connection}"))
    assert [service.door.get(found.id) for found in own] == own


async def test_an_unread_result_outlasts_many_connections_of_one_run_each(service: Service) -> None:
    own = await start(service, "print mine")
    await ended(own)
    early = (await many(service, 1, origin=("10.0.0.1", "b")))[0]
    for connection in range(100):
        await many(service, 1, origin=("10.0.0.1", f"a{connection}"))
    assert service.door.get(early.id) is early
    assert service.door.get(own.id) is own


async def test_an_unread_result_of_an_open_session_outlasts_those_of_sessions_that_ended(service: Service) -> None:
    session = (await run(service, "print one")).session_id
    early = (await many(service, 1, session, ("10.0.0.1", "b")))[0]
    for connection in range(64):
        await many(service, 1, origin=("10.0.0.1", f"a{connection}"))
    late = (await many(service, 1, session, ("10.0.0.1", "c")))[0]
    for connection in range(64, 100):
        await many(service, 1, origin=("10.0.0.1", f"a{connection}"))
    assert service.door.get(early.id) is early
    assert service.door.get(late.id) is late


async def test_who_comes_when_nobody_reads_results_gets_the_result_that_it_asks_for(service: Service) -> None:
    for connection in range(100):
        found = (await many(service, 1, origin=("10.0.0.1", f"a{connection}")))[0]
        assert service.door.get(found.id) is found


async def test_results_that_were_given_make_room_first(service: Service) -> None:
    waiting = await many(service, 30)
    given = await many(service, 30)
    for found in given:
        found.taken()
    await many(service, 30)
    assert [service.door.get(found.id) for found in waiting] == waiting
    with pytest.raises(UnknownRun, match="its result was given, or expired"):
        service.door.get(given[0].id)


async def test_a_result_that_made_room_says_so(service: Service) -> None:
    runs = await many(service, 66)
    with pytest.raises(UnknownRun) as raised:
        service.door.get(runs[0].id)
    assert str(raised.value).endswith(
        "is not known: its result made room for those of others; start it again, and read results soon"
    )


async def test_what_was_asked_is_not_kept_with_the_result(service: Service) -> None:
    code = f"print {'one' * 1000}"
    found = await start(service, code)
    await ended(found)
    assert not [kept for kept in gc.get_objects() if isinstance(kept, RunRequest) and kept.code == code]


async def test_callers_cannot_leave_runs_behind_without_limit(service: Service) -> None:
    first = await start(service, "sleep 25")
    assert await first.wait(0) is None
    for _ in range(31):
        await start(service, "print one", first.session_id)
    refused = "this session has 32 runs that go on or wait, the most that it may have now; wait for one, or cancel one"
    with pytest.raises(CapacityReached) as raised:
        await start(service, "print one", first.session_id)
    assert str(raised.value) == refused
    first.cancel()
    await ended(first)
    await ended(service.door.of_session(first.session_id)[-1])
    assert (await ended(await start(service, "print two", first.session_id))).stdout.text == "two\n"


async def test_runs_that_are_started_at_the_same_time_are_counted(service: Service) -> None:
    session = (await run(service, "print one")).session_id
    started: list[Work] = []

    async def begin() -> None:
        with suppress(CapacityReached):
            started.append(await start(service, "sleep 1", session))

    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(begin)
    assert len(started) == 32


@pytest.mark.parametrize("changes", [{"sessions": {"max": 13}, "pool": {"max": 13}}], ids=["13 sessions"])
async def test_however_many_runs_others_have_each_session_can_have_some(service: Service) -> None:
    sessions = [open_session(service, "script") for _ in range(12)]
    counts = []
    for session in sessions:
        await start(service, "sleep 25", session)
        with suppress(CapacityReached):
            for _ in range(40):
                await start(service, "print one", session)
        counts.append(len(service.door.of_session(session)))
    assert counts == [32, 32, 32, 32, 20, *[4] * 7]
    assert (await ended(await start(service, "print one"))).status == "ok"


async def test_work_whose_code_has_run_is_not_cancelled_while_its_files_are_saved(
    service: Service, engine: MemoryBackend
) -> None:
    async def slow(process: MemoryProcess) -> int:
        await anyio.sleep(5)
        return 0

    engine.programs = {**PROGRAMS, "tar": slow}
    found = await start(service, 'set x 1\nreport {"files": ["a"]}')
    assert await found.wait(1) is None
    assert found.state == "saving"
    found.cancel()
    await service.sessions.interrupt(found.session_id)
    assert (await ended(found)).status == "ok"
    assert (await run(service, "get x", session_id=found.session_id)).result == "1"


@pytest.mark.parametrize("changes", [{"sessions": {"max": 3, "starts_per_second": 1000.0}}], ids=["3 sessions"])
async def test_sessions_whose_work_starts_next_are_not_closed_to_make_room(service: Service) -> None:
    checked = await service.door.check(Ask(caller=USER, code="print one", language="script"))
    started: list[Work] = []
    for _ in range(10):
        with suppress(CapacityReached):
            started.append(service.door.start(checked))
    assert len(started) == 3
    assert [(await ended(found)).status for found in started] == ["ok"] * 3
    assert not any(info.running for info in service.sessions.list())


@pytest.mark.parametrize("fails", [True, False], ids=["failed", "attended"])
async def test_nothing_that_was_asked_waits_for_the_garbage_collector(
    service: Service, engine: MemoryBackend, fails: bool
) -> None:
    code = f"print {'one' * 1000}"
    gc.disable()
    try:
        if fails:
            engine.failure = StartFailed("no sandbox today; try tomorrow")
            found = await start(service, code)
            with suppress(StartFailed):
                await found.wait()
        else:
            await run(service, code)
        assert not [kept for kept in gc.get_objects() if isinstance(kept, RunRequest) and kept.code == code]
    finally:
        gc.enable()
