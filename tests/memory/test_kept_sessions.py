"""Sessions that outlive what holds them: put aside when they are idle, opened by their next use, saved at the end."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from llm_sandbox_mcp.base.errors import (
    BadState,
    CapacityReached,
    SandboxLost,
    StartFailed,
    StoreFailed,
    Unavailable,
    UnknownSession,
)
from llm_sandbox_mcp.base.principal import ANONYMOUS, TOKEN, USER
from llm_sandbox_mcp.base.results import Execution
from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.service.ask import Ask
from llm_sandbox_mcp.testing.asking import start
from llm_sandbox_mcp.testing.profiles import small_profile
from tests.memory.backend import open_in_memory
from tests.memory.clock import JumpingLoop

from .conftest import run
from .keeping import Gate, KeepingEngine, MemoryStore, keeping_handlers, kept_in

pytestmark = pytest.mark.anyio

IDLE = 100.0
SAVE = 10.0


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    store = MemoryStore()
    monkeypatch.setattr("llm_sandbox_mcp.wiring.kept_sessions", kept_in(store))
    return store


@pytest.fixture
def engine(store: MemoryStore) -> KeepingEngine:
    return KeepingEngine(store.steps)


@pytest.fixture
def profile(tmp_path: Path, changes: dict[str, Mapping[str, object]]) -> Profile:
    sessions = {"keep": True, "idle_timeout": IDLE, "save_timeout": SAVE, "starts_per_second": 1000.0}
    tables: dict[str, Mapping[str, object]] = {
        "handlers": {"folders": (str(keeping_handlers(tmp_path / "kept-handlers")),)},
        **changes,
        "sessions": {**sessions, **changes.get("sessions", {})},
    }
    return small_profile("embedded", tmp_path, **tables)


@asynccontextmanager
async def another_server(profile: Profile, store: MemoryStore) -> AsyncIterator[Service]:
    """Another server with the same store."""
    async with open_in_memory(profile, KeepingEngine(store.steps)) as service:
        yield service


async def until(condition: Callable[[], bool], what: str) -> None:
    """Waits for something that comes within an hour of the clock that jumps."""
    with anyio.move_on_after(3600):
        while not condition():
            await anyio.sleep(0.01)
    assert condition(), what


async def put_aside(service: Service, session_id: str) -> None:
    """Waits until an idle session is put aside."""
    await until(lambda: not service.sessions.is_open(session_id), "it is put aside")


def codes(result: Execution) -> list[str]:
    return [note.code for note in result.notes]


async def value(service: Service, session_id: str) -> str | None:
    """The value of `x` in a session."""
    return (await run(service, "get x", session_id=session_id)).result


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


@pytest.mark.parametrize("point", ["save variables", "create", "pack", "packed", "complete", "completed", "entries"])
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


@pytest.mark.parametrize("point", ["pack", "packed", "complete", "completed", "entries"])
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


async def test_callers_that_come_again_while_sessions_wait_to_be_put_aside_keep_no_other_from_it(
    service: Service, store: MemoryStore
) -> None:
    """Those that are in use again must not take the places of those that are saved."""
    ids = [(await run(service, f"set x {number}")).session_id for number in range(6)]
    gate = Gate(store.steps, "pack")
    await gate.reached.wait()
    async with anyio.create_task_group() as tasks:
        waiting = [session for session in ids if not running(service, session)]
        assert len(waiting) == 2
        for session in waiting:
            tasks.start_soon(partial(run, service, "sleep 20", session_id=session))
        await anyio.sleep(1)
        gate.opened.set()
        await anyio.sleep(5)
        assert {info.id for info in service.sessions.list()} == {*waiting}
    assert store.names == sorted({*ids}.difference(waiting))


def running(service: Service, session_id: str) -> bool:
    return any(info.running for info in service.sessions.list() if info.id == session_id)
