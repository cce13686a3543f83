"""Sessions that outlive what holds them: put aside when they are idle, opened by their next use, saved at the end."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import anyio
import anyio.lowlevel
import pytest

from llm_sandbox_mcp.base.errors import (
    BadState,
    CapacityReached,
    OutOfMemory,
    SandboxLost,
    StartFailed,
    StoreFailed,
    Unavailable,
    UnknownSession,
)
from llm_sandbox_mcp.base.principal import ANONYMOUS, TOKEN, USER
from llm_sandbox_mcp.base.results import Execution
from llm_sandbox_mcp.compat.llm_sandbox.running import Cell, CellSession
from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.service.ask import Ask, Checked
from llm_sandbox_mcp.testing.asking import start
from tests.memory.clock import JumpingLoop

from .conftest import run
from .keeping import (
    IDLE,
    SAVE,
    Gate,
    KeepingEngine,
    MemoryStore,
    another_server,
    codes,
    kept_engine,  # noqa: F401 - a fixture, as are the next ones
    kept_profile,  # noqa: F401
    kept_store,  # noqa: F401
    put_aside,
    until,
    value,
)

pytestmark = pytest.mark.anyio

DESCRIBED = "describe", "described", "entries"
"""The last steps of a state that is written."""


# Putting aside


async def test_an_idle_session_is_put_aside_in_time_and_its_next_use_opens_it(
    service: Service, engine: KeepingEngine, store: MemoryStore
) -> None:
    session = (await run(service, "set x 1")).session_id
    engine.texts["memory-1"] = "text"
    began = anyio.current_time()
    await put_aside(service, session)
    assert anyio.current_time() - began == pytest.approx(IDLE, abs=1)
    assert (store.names, service.sessions.list()) == ([session], ())
    await until(lambda: not engine.live, "its sandbox is gone")
    again = await run(service, "get x", session_id=session)
    assert (again.result, again.session_id, again.session_state) == ("1", session, "kept")
    (note,) = again.notes
    assert note.code == "opened_again"
    assert "the session was put aside" in note
    assert "is lost" not in note
    assert note.facts["lost"] is False
    assert (engine.texts["memory-2"], store.names) == ("text", [f"{session}.live"])
    assert service.sessions.list()[0].runs == 2
    assert codes(await run(service, "get x", session_id=session)) == []
    await put_aside(service, session)
    assert store.names == [session]


async def test_a_session_without_a_state_leaves_none_when_it_is_idle(service: Service, store: MemoryStore) -> None:
    session = service.sessions.open(USER, "script")
    await put_aside(service, session)
    assert store.names == []
    with pytest.raises(UnknownSession, match="it was closed, or expired"):
        await run(service, "get x", session_id=session)


async def test_one_that_is_made_live_and_not_used_is_put_aside_again_as_it_was(
    service: Service, engine: KeepingEngine, store: MemoryStore
) -> None:
    session = (await run(service, "set x 1")).session_id
    await put_aside(service, session)
    await service.keeping.wake(USER, session)
    assert service.sessions.is_open(session)
    await put_aside(service, session)
    assert (engine.made, store.names) == (1, [session])
    assert await value(service, session) == "1"


async def test_a_caller_that_comes_while_a_session_is_put_aside_keeps_it_and_it_goes_on(
    service: Service, engine: KeepingEngine, store: MemoryStore
) -> None:
    session = (await run(service, "set x 1")).session_id
    gate = Gate(store.steps, "packed")
    await gate.reached.wait()
    results: list[Execution] = []

    async def use() -> None:
        results.append(await run(service, "set x 2\nget x", session_id=session))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(use)
        await until(lambda: service.sessions.list()[0].running, "the caller waits")
        gate.opened.set()
    assert [(one.result, codes(one)) for one in results] == [("2", [])]
    assert (engine.made, store.names) == (1, [f"{session}.live"])
    await put_aside(service, session)
    assert store.names == [session]
    assert await value(service, session) == "2"


@pytest.mark.parametrize("point", ["save variables", "create", "pack", "packed", "complete", "completed", *DESCRIBED])
async def test_a_caller_that_closes_a_session_while_it_is_put_aside_leaves_no_state(
    service: Service, store: MemoryStore, point: str
) -> None:
    session = (await run(service, "set x 1")).session_id
    gate = Gate(store.steps, point)
    await gate.reached.wait()
    assert not await service.keeping.discard(USER, session)  # it is live still
    store.steps.before = None
    await service.sessions.close(session)
    gate.opened.set()
    await anyio.sleep(IDLE)
    assert store.names == []
    with pytest.raises(UnknownSession, match="it was closed"):
        await run(service, "get x", session_id=session)


@pytest.mark.parametrize("point", ["pack", "packed", "complete", "completed", *DESCRIBED])
async def test_a_caller_that_resets_a_session_while_it_is_put_aside_leaves_no_state(
    service: Service, store: MemoryStore, point: str
) -> None:
    session = (await run(service, "set x 1")).session_id
    gate = Gate(store.steps, point)
    await gate.reached.wait()
    store.steps.before = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(service.sessions.reset, session)
        await until(lambda: service.sessions.list()[0].running, "the caller waits")
        gate.opened.set()
    assert store.names == []
    result = await run(service, "get x", session_id=session)
    assert (result.result, codes(result)) == (None, [])


async def test_one_that_cannot_be_saved_is_tried_three_times_and_then_closed_with_the_reason(
    service: Service, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    session = (await run(service, "set x 1")).session_id
    store.failure = "the disk is full"
    began, tried = anyio.current_time(), list[float]()

    async def note(name: str) -> None:
        if name == "create":
            tried.append(anyio.current_time() - began)

    store.steps.before = note
    await put_aside(service, session)
    assert tried == [pytest.approx(number * IDLE, abs=2) for number in (1, 2, 3)]
    assert [record.getMessage() for record in caplog.records] == [
        "a session could not be put aside: the disk is full"
    ] * 3
    with pytest.raises(UnknownSession, match="is not open: it was idle, and could not be saved: the disk is full"):
        await run(service, "get x", session_id=session)


async def test_one_that_could_not_be_saved_for_a_while_is_not_lost(service: Service, store: MemoryStore) -> None:
    session = (await run(service, "set x 1")).session_id
    store.failure = "the disk is full"
    await anyio.sleep(2.5 * IDLE)
    store.failure = ""
    await put_aside(service, session)
    assert await value(service, session) == "1"


async def test_what_nobody_is_known_to_own_is_not_kept(service: Service, store: MemoryStore) -> None:
    session = (await service.run(Ask(caller=ANONYMOUS, code="set x 1", language="script"))).session_id
    await put_aside(service, session)
    assert (store.names, store.steps.done) == ([], [])
    with pytest.raises(UnknownSession, match="it was closed, or expired"):
        await service.run(Ask(caller=ANONYMOUS, code="get x", language="script", session_id=session))


async def test_a_caller_that_ends_a_session_that_is_put_aside_removes_its_state(
    service: Service, store: MemoryStore
) -> None:
    session = (await run(service, "set x 1")).session_id
    await put_aside(service, session)
    assert not await service.keeping.discard(TOKEN, session)
    assert not await service.keeping.discard(ANONYMOUS, session)
    assert store.names == [session]
    assert await service.keeping.discard(USER, session)
    assert not await service.keeping.discard(USER, session)
    assert store.names == []


@pytest.mark.parametrize("keep", [True, False])
async def test_the_last_run_of_a_session_that_was_put_aside_leaves_no_state(
    service: Service, store: MemoryStore, keep: bool
) -> None:
    session = (await run(service, "set x 1")).session_id
    await put_aside(service, session)
    assert (await run(service, "get x", session_id=session, keep_session=keep)).result == "1"
    assert store.names == ([f"{session}.live"] if keep else [])


async def test_many_sessions_that_are_idle_at_once_are_all_put_aside_and_meanwhile_the_server_does_not_spin(
    service: Service, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [(await run(service, f"set x {number}")).session_id for number in range(6)]
    gate = Gate(store.steps, "pack")
    await gate.reached.wait()
    turns = 0
    turn = JumpingLoop.turn

    def count(loop: JumpingLoop) -> None:
        nonlocal turns
        turns += 1
        assert turns < 10_000
        turn(loop)

    monkeypatch.setattr(JumpingLoop, "turn", count)
    await anyio.sleep(20)
    assert gate.number == 4  # the others wait
    assert turns < 1000
    gate.opened.set()
    await until(lambda: not service.sessions.list(), "all are put aside")
    assert store.names == sorted(ids)


@pytest.mark.parametrize("changes", [{"sessions": {"max": 12}}])
async def test_callers_that_come_again_while_sessions_wait_to_be_put_aside_keep_no_other_from_it(
    service: Service, store: MemoryStore
) -> None:
    """Those that are in use again must not take the places of those that are saved."""
    ids = [(await run(service, f"set x {number}")).session_id for number in range(9)]
    gate = Gate(store.steps, "pack")
    await until(lambda: gate.number == 4, "as many are saved as may be at once")
    async with anyio.create_task_group() as tasks:
        again = [session for session in ids if not running(service, session)][:4]
        for session in again:
            tasks.start_soon(partial(run, service, "sleep 20", session_id=session))
        await anyio.sleep(1)
        gate.opened.set()
        await anyio.sleep(5)
        assert {info.id for info in service.sessions.list()} == {*again}
    assert store.names == sorted({*ids}.difference(again))


def running(service: Service, session_id: str) -> bool:
    return any(info.running for info in service.sessions.list() if info.id == session_id)


# The end of a server


@pytest.mark.parametrize("number", [0, 1, 6])
async def test_a_server_that_ends_saves_what_is_idle_at_once(
    service: Service, store: MemoryStore, profile: Profile, number: int
) -> None:
    ids = [(await run(service, f"set x {one}")).session_id for one in range(number)]
    began = anyio.current_time()
    await service.keeping.end()
    assert anyio.current_time() - began < SAVE / 4
    assert store.names == sorted(ids)
    await service.keeping.end()
    with pytest.raises(Unavailable, match="the server is ending; try again when it is back"):
        await run(service, "get x")
    for session in ids:
        with pytest.raises(Unavailable, match="the server is ending"):
            await run(service, "get x", session_id=session)
    async with another_server(profile, store) as other:
        assert [await value(other, session) for session in ids] == [str(one) for one in range(number)]


async def test_the_end_of_the_scope_saves_what_is_live(profile: Profile, store: MemoryStore) -> None:
    async with another_server(profile, store) as first:
        session = (await run(first, "set x 1")).session_id
    assert store.names == [session]
    async with another_server(profile, store) as second:
        again = await run(second, "get x", session_id=session)
        assert (again.result, codes(again)) == ("1", ["opened_again"])


async def test_a_session_that_goes_on_after_its_state_says_what_is_lost_if_its_server_is_killed(
    profile: Profile, store: MemoryStore
) -> None:
    async with another_server(profile, store) as first:
        session = (await run(first, "set x 1")).session_id
    async with another_server(profile, store) as killed:
        await run(killed, "set x 2", session_id=session)
        before = dict(store.objects)
    store.objects = before
    async with another_server(profile, store) as third:
        again = await run(third, "get x", session_id=session)
    (note,) = again.notes
    assert again.result == "1"
    assert "its server was killed, or still has it; the session is as it was" in note
    assert "after run 1, with " in note and note.facts["lost"] is True


async def test_what_runs_at_the_end_goes_on_for_half_of_the_time_and_is_interrupted_then(
    service: Service, store: MemoryStore, profile: Profile
) -> None:
    short, long = [(await run(service, "set x 1")).session_id for _ in range(2)]
    results: dict[str, Execution] = {}

    async def use(session: str, seconds: float) -> None:
        results[session] = await run(service, f"sleep {seconds}\nset x 2", session_id=session)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(use, short, 2)
        tasks.start_soon(use, long, 20)
        await anyio.sleep(1)
        began = anyio.current_time()
        await service.keeping.end()
        assert anyio.current_time() - began == pytest.approx(SAVE / 2, abs=1)
    assert (results[short].status, results[long].status) == ("ok", "cancelled")
    async with another_server(profile, store) as other:
        found = await run(other, "get x", session_id=short)
        assert (found.result, codes(found)) == ("2", ["opened_again"])
        found = await run(other, "get x", session_id=long)
        assert (found.result, codes(found)) == ("1", ["opened_again", "interrupted"])


async def test_a_session_that_is_being_saved_at_half_of_the_time_is_not_interrupted(
    service: Service, store: MemoryStore, profile: Profile
) -> None:
    session = (await run(service, "set x 1")).session_id

    async def slow(name: str) -> None:
        if name == "save variables":
            await anyio.sleep(0.7 * SAVE)

    store.steps.before = slow
    await service.keeping.end()
    store.steps.before = None
    async with another_server(profile, store) as other:
        found = await run(other, "get x", session_id=session)
        assert (found.result, codes(found)) == ("1", ["opened_again"])


async def test_who_waits_for_a_session_when_the_server_ends_gets_no_turn(
    service: Service, store: MemoryStore, profile: Profile
) -> None:
    session = (await run(service, "set x 1")).session_id
    first = await start(service, "sleep 20", language="script", session_id=session)
    waiting = [await start(service, "set x 2", language="script", session_id=session) for _ in range(2)]
    await anyio.sleep(1)
    await service.keeping.end()
    result = await first.wait()
    assert result is not None and result.status == "cancelled"
    for work in waiting:
        with pytest.raises(Unavailable, match="the server is ending"):
            await work.wait()
    async with another_server(profile, store) as other:
        assert await value(other, session) == "1"


async def test_the_sessions_that_were_used_last_are_saved_first(service: Service, store: MemoryStore) -> None:
    ids = [(await run(service, f"set x {number}")).session_id for number in range(6)]
    await run(service, "get x", session_id=ids[0])
    saved: list[str] = []

    async def note(name: str) -> None:
        if name == "packed":  # one after the other, and then no more
            saved.append(name)
            await (anyio.sleep_forever() if len(saved) > 4 else anyio.lowlevel.checkpoint())

    store.steps.before = note
    began = anyio.current_time()
    await service.keeping.end()
    assert anyio.current_time() - began == pytest.approx(SAVE, abs=1)
    assert {*store.names} == {ids[0], *ids[3:]}


@pytest.mark.parametrize("point", ["save variables", "create", "packed", "complete", "describe"])
async def test_a_save_that_hangs_does_not_hold_up_the_end_and_leaves_the_older_state(
    service: Service, store: MemoryStore, profile: Profile, caplog: pytest.LogCaptureFixture, point: str
) -> None:
    session = (await run(service, "set x 1")).session_id
    await put_aside(service, session)
    await run(service, "set x 2", session_id=session)
    Gate(store.steps, point)
    began = anyio.current_time()
    await service.keeping.end()
    assert anyio.current_time() - began == pytest.approx(SAVE, abs=1)
    assert "1 of 1 sessions were not saved within 10s, sessions.save_timeout" in caplog.messages
    store.steps.before = None
    async with another_server(profile, store) as other:
        found = await run(other, "get x", session_id=session)
        assert found.result == "1" and "what came after that, if anything, is lost" in found.notes[0]


async def test_a_session_whose_opening_hangs_does_not_hold_up_the_end_and_is_as_it_was(
    service: Service, store: MemoryStore, profile: Profile
) -> None:
    session = (await run(service, "set x 1")).session_id
    await put_aside(service, session)
    gate, given_up = Gate(store.steps, "rename"), anyio.Event()

    async def use() -> None:
        try:
            await run(service, "get x", session_id=session)
        finally:
            given_up.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(use)
        await gate.reached.wait()
        await service.keeping.end()
        tasks.cancel_scope.cancel()
        with anyio.move_on_after(60, shield=True) as late:
            await given_up.wait()
        gate.opened.set()
    assert not late.cancelled_caught
    store.steps.before = None
    async with another_server(profile, store) as other:
        assert (await run(other, "get x", session_id=session)).result == "1"


@pytest.mark.parametrize("changes", [{"sessions": {"max": 12}}])
@pytest.mark.parametrize("point", ["save variables", "pack", "complete", "completed", *DESCRIBED])
async def test_a_server_that_ends_while_many_sessions_are_put_aside_saves_them_all(
    service: Service, store: MemoryStore, profile: Profile, point: str
) -> None:
    ids = [(await run(service, f"set x {number}")).session_id for number in range(10)]
    gate = Gate(store.steps, point)
    await until(lambda: gate.number == 4, "as many are saved as may be at once")
    began = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(service.keeping.end)
        await anyio.sleep(1)
        gate.opened.set()
    assert anyio.current_time() - began < SAVE / 2
    assert store.names == sorted(ids)


# The return to a state


async def test_a_sandbox_that_is_lost_goes_back_to_what_was_put_aside_and_code_that_is_killed_does_not(
    service: Service, engine: KeepingEngine, store: MemoryStore
) -> None:
    session = (await run(service, "set x 1")).session_id
    await put_aside(service, session)
    await run(service, "set x 2", session_id=session)
    await engine.live["memory-2"].kill()
    back = await run(service, "get x", session_id=session)
    assert (back.result, codes(back)) == ("1", ["opened_again"])
    assert "what came after that is lost" in back.notes[0] and back.notes[0].facts["lost"] is True
    with pytest.raises(SandboxLost):
        await run(service, "die", session_id=session)
    assert await value(service, session) == "1"  # the engine may have ended it
    await run(service, "deaf\nsleep 1000", session_id=session, timeout=5)
    fresh = await run(service, "get x", session_id=session)
    assert (fresh.result, codes(fresh)) == (None, ["started_fresh"])
    await put_aside(service, session)
    assert await value(service, session) is None


async def reopening(
    service: Service,
    engine: KeepingEngine,
    store: MemoryStore,
    at: int,
    act: Callable[[anyio.CancelScope], Awaitable[None]],
) -> tuple[int, Execution]:
    """Opens a session again, and acts at that step; returns how many steps there were, and the next use."""
    session = (await run(service, "set x 1")).session_id
    await put_aside(service, session)
    taken = 0

    async def before(name: str) -> None:
        nonlocal taken
        taken += 1
        if taken == at:
            await act(scope)

    with anyio.CancelScope() as scope:
        await service.keeping.wake(USER, session)
        store.steps.before = before
        with suppress(SandboxLost, StartFailed, BadState, StoreFailed):
            await run(service, "get x", session_id=session)
    store.steps.before = None
    return taken, await run(service, "get x", session_id=session)


async def test_a_caller_that_leaves_at_any_point_of_the_return_leaves_the_session_as_it_was(
    service: Service, engine: KeepingEngine, store: MemoryStore
) -> None:
    async def cancel(scope: anyio.CancelScope) -> None:
        scope.cancel()
        await anyio.lowlevel.checkpoint()

    steps, at = 1, 0
    while at <= steps:
        at += 1
        steps, found = await reopening(service, engine, store, at, cancel)
        assert (at, found.result) == (at, "1")
        assert codes(found) in ([], ["opened_again"])
        if found.notes:
            assert found.notes[0].facts["lost"] is False, at
    assert at > 10


async def test_a_sandbox_that_ended_since_its_code_needed_too_much_memory_does_not_go_back(
    service: Service, engine: KeepingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = (await run(service, "set x 1")).session_id
    await put_aside(service, session)
    await run(service, "set x 2", session_id=session)

    async def loss() -> SandboxLost:
        return OutOfMemory("the pod ran out of memory", "use less")

    sandbox = engine.live["memory-2"]
    monkeypatch.setattr(sandbox, "loss", loss)
    await sandbox.kill()
    fresh = await run(service, "get x", session_id=session)
    assert (fresh.result, codes(fresh)) == (None, ["started_fresh"])


async def test_a_sandbox_that_ends_at_any_point_of_the_return_is_replaced_by_the_next_use(
    service: Service, engine: KeepingEngine, store: MemoryStore
) -> None:
    async def kill(scope: anyio.CancelScope) -> None:
        for sandbox in [*engine.live.values()]:
            await sandbox.kill()

    steps, at = 1, 0
    while at <= steps:
        at += 1
        steps, found = await reopening(service, engine, store, at, kill)
        assert (at, found.result) == (at, "1")


async def test_a_store_that_fails_while_a_session_is_opened_leaves_it_as_it_was(
    service: Service, engine: KeepingEngine, store: MemoryStore
) -> None:
    async def fail(scope: anyio.CancelScope) -> None:
        raise StoreFailed("the disk is gone")

    session = (await run(service, "set x 1")).session_id
    await put_aside(service, session)
    await service.keeping.wake(USER, session)
    for point in ("open", "read", "rename"):

        async def before(name: str, point: str = point) -> None:
            if name == point:
                raise StoreFailed("the disk is gone")

        store.steps.before = before
        with pytest.raises(StoreFailed, match="the disk is gone"):
            await run(service, "get x", session_id=session)
        store.steps.before = None
    again = await run(service, "get x", session_id=session)
    assert (again.result, again.notes[0].facts["lost"]) == ("1", False)


async def test_a_caller_that_leaves_while_deaf_variables_are_opened_loses_nothing(
    service: Service, engine: KeepingEngine, store: MemoryStore
) -> None:
    session = (await run(service, "set x 1")).session_id
    await put_aside(service, session)

    async def hang(name: str) -> None:
        if name == "open variables":
            scope.cancel()
            with anyio.CancelScope(shield=True):
                await anyio.sleep(60)

    store.steps.before = hang
    with anyio.CancelScope() as scope:
        await run(service, "get x", session_id=session)
    store.steps.before = None
    again = await run(service, "get x", session_id=session)
    assert (again.result, codes(again)) == ("1", ["opened_again"])


@pytest.mark.parametrize("point", ["open", "unpack", "unpacked", "open variables", "report", "rename", "renamed"])
async def test_a_session_that_is_closed_while_it_is_opened_again_is_gone_and_leaves_nothing(
    service: Service, engine: KeepingEngine, store: MemoryStore, point: str
) -> None:
    session = (await run(service, "set x 1")).session_id
    await put_aside(service, session)
    await service.keeping.wake(USER, session)
    gate = Gate(store.steps, point)
    errors: list[Exception] = []

    async def refresh() -> None:
        try:
            await service.sessions.refresh(session, "script")
        except (UnknownSession, SandboxLost, StartFailed, BadState) as error:
            errors.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(refresh)
        await gate.reached.wait()
        store.steps.before = None
        await service.sessions.close(session)
        gate.opened.set()
    assert len(errors) == 1
    await until(lambda: not engine.live, "its sandbox is gone")
    assert store.names == []


# What callers are told


async def test_the_return_is_told_until_a_caller_has_a_result_that_tells_it(
    service: Service, store: MemoryStore, profile: Profile
) -> None:
    session = (await run(service, "set x 1")).session_id
    await put_aside(service, session)
    await service.keeping.wake(USER, session)
    for _ in range(2):  # nobody takes these results
        work = await start(service, "get x", language="script", session_id=session)
        await work.wait()
        assert codes(work.execution) == ["opened_again"]
    await put_aside(service, session)
    again = await run(service, "get x", session_id=session)
    assert (again.result, codes(again)) == ("1", ["earlier", "opened_again"])
    assert again.notes[0].startswith("the session was put aside")
    await put_aside(service, session)
    assert codes(await run(service, "get x", session_id=session)) == ["opened_again"]


async def test_what_a_session_and_its_state_both_know_is_told_once(
    service: Service, engine: KeepingEngine, store: MemoryStore
) -> None:
    session = (await run(service, "set x 1")).session_id
    await put_aside(service, session)
    await service.keeping.wake(USER, session)
    await (await start(service, "get x", language="script", session_id=session)).wait()
    gate = Gate(store.steps, "packed")
    await gate.reached.wait()
    comes = await start(service, "get x", language="script", session_id=session)
    await anyio.sleep(1)
    gate.opened.set()
    await comes.wait()
    await engine.live["memory-2"].kill()
    again = await run(service, "get x", session_id=session)
    assert (again.result, codes(again)) == ("1", ["earlier", "opened_again"])


async def test_a_loss_that_nobody_was_told_of_is_told_after_the_session_was_put_aside(
    service: Service, engine: KeepingEngine
) -> None:
    session = (await run(service, "set x 1")).session_id
    await engine.live["memory-1"].kill()
    work = await start(service, "set x 2", language="script", session_id=session)
    await work.wait()
    assert codes(work.execution) == ["started_fresh"]
    await put_aside(service, session)
    again = await run(service, "get x", session_id=session)
    assert (again.result, codes(again)) == ("2", ["earlier", "opened_again"])
    assert "started fresh" in again.notes[0]


# Waking


async def test_callers_that_come_at_once_make_one_session(
    service: Service, engine: KeepingEngine, store: MemoryStore
) -> None:
    session = (await run(service, "set x 1")).session_id
    await put_aside(service, session)
    results: list[Execution] = []

    async def use() -> None:
        results.append(await run(service, "get x", session_id=session))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(use)
    assert [one.result for one in results] == ["1"] * 5
    assert sorted(map(codes, results)) == [[], [], [], [], ["opened_again"]]
    assert (len(service.sessions.list()), engine.made) == (1, 2)


async def test_nothing_wakes_what_is_not_a_callers_own(service: Service, store: MemoryStore, profile: Profile) -> None:
    session = (await run(service, "set x 1")).session_id
    await put_aside(service, session)
    store.steps.done.clear()
    last = "1" if session[-1] == "0" else "0"
    for malformed in ("", "x", "..", session[:-1] + last, session.upper() + "\n", f"{session}.live", "0" * 40):
        await service.keeping.wake(USER, malformed)
    await service.keeping.wake(ANONYMOUS, session)
    assert store.steps.done == []  # the store is not even asked
    await service.keeping.wake(TOKEN, session)
    async with another_server(profile, store) as other:
        unknown = (await run(other, "set x 1", keep_session=False)).session_id
        await service.keeping.wake(USER, unknown)
        assert service.sessions.list() == ()
        await other.keeping.wake(USER, session)  # the id of another server
        assert other.sessions.is_open(session)


async def test_a_state_that_is_damaged_is_the_callers_to_know(service: Service, store: MemoryStore) -> None:
    session = (await run(service, "set x 1")).session_id
    await put_aside(service, session)
    ((owner, name),) = [key for key in store.objects if key[1] == session]
    whole, _ = store.objects[owner, name]
    store.put(owner, name, b"damaged")
    with pytest.raises(BadState, match=r"the session cannot be opened again: .* is damaged: its end is missing"):
        await run(service, "get x", session_id=session)
    assert service.sessions.list() == ()
    store.put(owner, name, whole)
    (data,) = store.data
    content, _ = store.objects.pop((owner, data))
    for damaged in (None, b"damaged", content[:-1]):
        if damaged is not None:
            store.put(owner, data, damaged)
        with pytest.raises(BadState, match=rf"the session cannot be opened again: '{session}' is damaged: "):
            await run(service, "get x", session_id=session)
    store.put(owner, data, content)
    assert await value(service, session) == "1"


@pytest.mark.parametrize("changes", [{"sessions": {"max": 1}}])
async def test_a_session_that_is_put_aside_needs_room_to_be_woken(service: Service, store: MemoryStore) -> None:
    session = (await run(service, "set x 1")).session_id
    await put_aside(service, session)
    busy = await start(service, "sleep 50", language="script")
    with pytest.raises(CapacityReached):
        await run(service, "get x", session_id=session)
    await busy.wait()
    assert await value(service, session) == "1"
    await until(lambda: len(service.sessions.list()) == 1, "the one that makes room is put aside")
    assert store.names == sorted([busy.session_id, f"{session}.live"])


async def test_an_error_that_nobody_expects_is_logged_and_harms_nothing(
    service: Service, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    session = (await run(service, "set x 1")).session_id

    async def fail(name: str) -> None:
        raise ZeroDivisionError(name)

    store.steps.before = fail
    await until(lambda: "a session could not be put aside" in caplog.messages, "it is logged")
    store.steps.before = None
    await put_aside(service, session)
    assert await value(service, session) == "1"


@pytest.mark.parametrize("changes", [{"sessions": {"max": 1}}])
async def test_a_use_that_is_checked_while_another_session_needs_room_finds_its_own_all_the_same(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = (await run(service, "set x 1")).session_id
    await put_aside(service, session)
    check = service.door.check

    async def check_while_another_is_opened(ask: Ask) -> Checked:
        checked = await check(ask)
        service.sessions.open(USER, "script")
        await until(lambda: not service.sessions.is_open(session), "it has made room")
        return checked

    monkeypatch.setattr(service.door, "check", check_while_another_is_opened)
    assert await value(service, session) == "1"


async def test_a_session_of_cells_that_was_put_aside_is_opened_by_the_next_one(service: Service) -> None:
    async with CellSession(service, "script") as session:
        await session.run_cell(Cell("set x 1", "script", 10))
        await put_aside(service, session.id)
        assert (await session.run_cell(Cell("get x", "script", 10))).result == "1"
