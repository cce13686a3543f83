"""Checkpoints: sessions that are saved after each use that changed something, in spare time, and only what changed."""

from collections.abc import Mapping
from dataclasses import replace

import anyio
import pytest

from llm_sandbox_mcp.base.errors import StoreFailed
from llm_sandbox_mcp.base.principal import USER
from llm_sandbox_mcp.base.results import Execution, Library
from llm_sandbox_mcp.libraries.installing import Change, Installer
from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import install, session_of, start
from tests.memory.backend import MemorySandbox

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
    kept_in,
    kept_profile,  # noqa: F401
    kept_store,  # noqa: F401
    put_aside,
    until,
    value,
)

pytestmark = pytest.mark.anyio

SPARE = 0.02
"""Seconds that a use waits for a checkpoint."""
WARNING = "a session could not be saved after a run: the disk is full"
NOT_SAVED = "the session could not be saved after an earlier run: the disk is full"
POINTS = ["begin", "save variables", "create", "pack", "packed", "complete", "completed", "describe", "described"]
"""Steps of a checkpoint, in this order but for the first ones."""


@pytest.fixture
def changes() -> dict[str, Mapping[str, object]]:
    return {"sessions": {"checkpoint": "run"}}


async def rest(service: Service) -> None:
    """Waits for what is done in spare time; without a gate, that takes much less on the clock that jumps."""
    await anyio.sleep(5)


def layers(store: MemoryStore, session_id: str) -> int:
    return len(store.manifest(session_id).layers)


async def after_a_kill(
    profile: Profile, store: MemoryStore, session_id: str, code: str = "get x"
) -> tuple[Execution, Mapping[str, str]]:
    """What a session has in another server after its own was killed, as the store is now, and the text there."""
    copy = MemoryStore()
    copy.objects = dict(store.objects)
    engine = KeepingEngine(copy.steps)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("llm_sandbox_mcp.wiring.kept_sessions", kept_in(copy))
        async with another_server(profile, copy, engine) as other:
            return await run(other, code, session_id=session_id), engine.texts


async def saved(profile: Profile, store: MemoryStore, session_id: str, name: str = "x") -> str | None:
    """The value of a variable in the state that a session has in the store."""
    return (await after_a_kill(profile, store, session_id, f"get {name}"))[0].result


# What is saved, and when


async def test_after_each_run_what_has_changed_is_saved_and_a_killed_server_loses_nothing_of_it(
    service: Service, store: MemoryStore, profile: Profile
) -> None:
    session = (await run(service, "set x 1")).session_id
    assert store.objects == {}  # the result comes first
    for number in range(2, 6):
        await rest(service)
        assert (store.names, layers(store, session)) == ([f"{session}.live"], number - 1)
        found, _ = await after_a_kill(profile, store, session, f"get x{number - 1}" if number > 2 else "get x")
        assert (found.result, codes(found)) == (str(number - 1), ["opened_again"])
        assert f"after run {number - 1}, with {number - 1} variable" in found.notes[0]
        await run(service, f"set x{number} {number}", session_id=session)
    assert service.sessions.list()[0].runs == 5
    await rest(service)
    first, *later = store.manifest(session).layers
    assert [layer.object for layer in (first, *later)] == store.data
    assert await saved(profile, store, session) == "1"


async def test_a_layer_has_only_what_has_changed(service: Service, engine: KeepingEngine, store: MemoryStore) -> None:
    session = (await run(service, f"set large {'x' * 5000}")).session_id
    engine.texts["memory-1"] = "y" * 5000
    await run(service, "set a 1", session_id=session)
    await rest(service)
    await run(service, "set b 1", session_id=session)
    await rest(service)
    whole, second = [layer.size for layer in store.manifest(session).layers][-2:]
    assert whole > 10_000
    assert second < 1000


async def test_nothing_is_written_if_nothing_has_changed(service: Service, store: MemoryStore) -> None:
    session = (await run(service, "set x 1")).session_id
    await rest(service)
    before = dict(store.objects)
    for code in ("get x", "set x 1", "fail"):
        store.steps.done.clear()
        await run(service, code, session_id=session)
        await rest(service)
        assert "packed" in store.steps.done  # it was looked for
        assert {"complete", "describe", "rename", "remove"}.isdisjoint(store.steps.done)
        assert store.objects == before
    await run(service, "set x 2", session_id=session)
    await rest(service)
    assert layers(store, session) == 2


async def test_a_file_that_is_copied_in_is_saved_and_one_that_is_gone_is_gone(
    service: Service, engine: KeepingEngine, store: MemoryStore, profile: Profile
) -> None:
    session = (await run(service, "set x 1")).session_id
    await rest(service)
    await service.files.copy_in(session, "text", b"copied")
    assert engine.texts == {"memory-1": "copied"}
    await rest(service)
    assert layers(store, session) == 2
    found, texts = await after_a_kill(profile, store, session)
    assert (found.result, texts) == ("1", {"memory-1": "copied"})
    engine.texts["memory-1"] = ""
    await run(service, "set x 2", session_id=session)
    await rest(service)
    assert layers(store, session) == 3
    found, texts = await after_a_kill(profile, store, session)
    assert (found.result, texts) == ("2", {})


async def test_a_library_that_is_installed_is_saved(
    service: Service, engine: KeepingEngine, store: MemoryStore, profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def installs(_: Installer, sandbox: MemorySandbox, *__: object) -> Change:
        engine.texts[sandbox.id] = "library"
        return Change((Library("tiny", "1"),), (), {})

    monkeypatch.setattr(Installer, "check", lambda _, __, names: (names, []))
    monkeypatch.setattr(Installer, "install", installs)
    session = (await install(service, ["tiny"], language="script")).session_id
    await rest(service)
    assert (store.names, layers(store, session)) == ([f"{session}.live"], 1)
    await run(service, "set x 1", session_id=session)
    await rest(service)
    found, texts = await after_a_kill(profile, store, session)
    assert (found.result, texts) == ("1", {"memory-1": "library"})


# In spare time


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("point", POINTS)
async def test_a_use_that_comes_waits_for_a_moment_and_the_checkpoint_comes_after_it(
    service: Service, store: MemoryStore, profile: Profile, point: str, changed: bool
) -> None:
    gate = Gate(store.steps, point)
    session = (await run(service, "set x 1")).session_id
    await gate.reached.wait()
    await anyio.sleep(1)  # it may take as long as it likes while nobody waits
    assert service.sessions.list()[0].running is False
    began = anyio.current_time()
    result = await run(service, f"{'set y 2' * changed}\nget x", session_id=session)
    assert SPARE < anyio.current_time() - began < 3 * SPARE
    assert (result.result, codes(result), service.sessions.list()[0].runs) == ("1", [], 2)
    number = gate.number
    await rest(service)
    assert gate.number == number + 1  # it is tried again
    gate.opened.set()
    await rest(service)
    assert await saved(profile, store, session) == "1"
    assert await saved(profile, store, session, "y") == ("2" if changed else None)
    if changed:
        assert store.names == [f"{session}.live"]


async def test_a_checkpoint_that_is_done_in_time_is_not_broken_off(
    service: Service, store: MemoryStore, profile: Profile
) -> None:
    gate = Gate(store.steps, "pack")
    session = (await run(service, "set x 1")).session_id
    await gate.reached.wait()
    async with anyio.create_task_group() as tasks:
        work = await start(service, "set x 2", language="script", session_id=session)
        await anyio.sleep(SPARE / 4)
        gate.opened.set()
        tasks.start_soon(work.wait)
    assert store.steps.done.count("pack") == 1 or layers(store, session) == 1
    assert await saved(profile, store, session) == "1"
    await rest(service)
    assert (layers(store, session), await saved(profile, store, session)) == (2, "2")


async def test_uses_that_follow_each_other_at_once_have_one_checkpoint(
    service: Service, store: MemoryStore, profile: Profile
) -> None:
    session = service.sessions.open(USER, "script")
    async with anyio.create_task_group() as tasks:
        for number in range(10):
            work = await start(service, f"sleep 1\nset x{number} 1", language="script", session_id=session)
            tasks.start_soon(work.wait)
    await rest(service)
    assert 1 <= layers(store, session) <= 2
    assert [await saved(profile, store, session, f"x{number}") for number in range(10)] == ["1"] * 10


async def test_a_checkpoint_is_no_use_of_the_session(
    service: Service, engine: KeepingEngine, store: MemoryStore, profile: Profile
) -> None:
    session = (await run(service, "set x 1")).session_id
    ended = anyio.current_time()

    async def slow(name: str) -> None:
        if name == "complete" and anyio.current_time() < ended + IDLE / 2:
            await anyio.sleep(IDLE / 2)

    store.steps.before = slow
    live = await session_of(service, session, "script")
    before = live.uses, live.used_at
    await until(lambda: bool(store.objects), "it is saved")
    assert anyio.current_time() > ended + IDLE / 2
    assert not live.busy
    assert (live.uses, live.used_at) == before
    assert service.sessions.list()[0].expires_in == pytest.approx(IDLE / 2, abs=2)
    await put_aside(service, session)
    assert anyio.current_time() == pytest.approx(ended + IDLE, abs=2)


async def test_what_a_run_left_running_may_go_on_no_longer_because_of_a_checkpoint(
    service: Service, engine: KeepingEngine, store: MemoryStore
) -> None:
    session = (await run(service, "set x 1", timeout=10)).session_id
    began = anyio.current_time()
    sandbox = engine.live["memory-1"]
    await rest(service)
    assert layers(store, session) == 1
    while sandbox.alive and anyio.current_time() < began + 1000:
        await anyio.sleep(0.1)
        sandbox.used = replace(sandbox.used, cpu=(sandbox.used.cpu or 0.0) + 0.1)
    assert anyio.current_time() - began == pytest.approx(11, abs=1)


@pytest.mark.parametrize("point", POINTS)
async def test_a_session_that_is_closed_during_a_checkpoint_leaves_nothing(
    service: Service, store: MemoryStore, caplog: pytest.LogCaptureFixture, point: str
) -> None:
    gate = Gate(store.steps, point)
    session = (await run(service, "set x 1")).session_id
    await gate.reached.wait()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(service.sessions.close, session)
        await anyio.sleep(1)
        gate.opened.set()
    await rest(service)
    assert (store.objects, service.sessions.list()) == ({}, ())
    assert caplog.records == []


# What goes wrong


async def test_a_store_that_fails_is_told_once_and_the_run_is_unharmed(
    service: Service, store: MemoryStore, profile: Profile, caplog: pytest.LogCaptureFixture
) -> None:
    session = (await run(service, "set x 1")).session_id
    await rest(service)
    store.failure = "the disk is full"
    result = await run(service, "set y 2\nget x", session_id=session)
    await anyio.sleep(IDLE / 2)
    assert (result.status, result.result, codes(result)) == ("ok", "1", [])
    assert caplog.messages == [WARNING]
    store.failure = ""
    told = await run(service, "set z 3\nget y", session_id=session)
    assert (told.result, told.notes) == ("2", (NOT_SAVED,))
    await rest(service)
    assert caplog.messages == [WARNING]
    assert not (await run(service, "get z", session_id=session)).notes
    assert [await saved(profile, store, session, name) for name in "xyz"] == ["1", "2", "3"]
    assert store.names == [f"{session}.live"]


@pytest.mark.parametrize("point", ["create", "write", "complete", "describe"])
async def test_what_could_not_be_saved_is_saved_the_next_time(
    service: Service, store: MemoryStore, profile: Profile, caplog: pytest.LogCaptureFixture, point: str
) -> None:
    session = (await run(service, "set x 1")).session_id
    await rest(service)

    async def fail(name: str) -> None:
        if name == point:
            raise StoreFailed("the disk is full")

    store.steps.before = fail
    await run(service, "set y 2", session_id=session)
    await rest(service)
    assert caplog.messages == [WARNING]
    assert (await saved(profile, store, session), await saved(profile, store, session, "y")) == ("1", None)
    store.steps.before = None
    await run(service, "set z 3", session_id=session)
    await rest(service)
    assert [await saved(profile, store, session, name) for name in "xyz"] == ["1", "2", "3"]


async def test_an_error_that_nobody_expects_is_logged_and_harms_nothing(
    service: Service, store: MemoryStore, profile: Profile, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(name: str) -> None:
        raise ZeroDivisionError(name)

    store.steps.before = fail
    session = (await run(service, "set x 1")).session_id
    await rest(service)
    assert caplog.messages == ["a session could not be saved after a run"]
    store.steps.before = None
    await run(service, "set y 1", session_id=session)
    await rest(service)
    assert await saved(profile, store, session) == "1"


# What comes after checkpoints


async def test_one_that_is_put_aside_with_nothing_new_only_gets_its_other_name(
    service: Service, store: MemoryStore
) -> None:
    session = (await run(service, "set x 1")).session_id
    await rest(service)
    before = {name: found for (_, name), found in store.objects.items()}
    store.steps.done.clear()
    await put_aside(service, session)
    assert {"complete", "describe", "remove"}.isdisjoint(store.steps.done)
    assert store.steps.done.count("rename") == 1
    assert store.names == [session]
    before[session] = before.pop(f"{session}.live")
    assert {name: found for (_, name), found in store.objects.items()} == before
    again = await run(service, "get x", session_id=session)
    assert (again.result, codes(again), again.notes[0].facts["lost"]) == ("1", ["opened_again"], False)


async def test_one_that_is_put_aside_with_something_new_has_it_as_another_layer(
    service: Service, store: MemoryStore
) -> None:
    session = (await run(service, "set x 1")).session_id
    await rest(service)
    store.failure = "the disk is full"
    await run(service, "set x 2", session_id=session)
    await rest(service)
    store.failure = ""
    await put_aside(service, session)
    assert (store.names, layers(store, session)) == ([session], 2)
    again = await run(service, "get x", session_id=session)
    assert (again.result, codes(again), again.notes[-1].facts["lost"]) == ("2", ["earlier", "opened_again"], False)
    assert again.notes[0] == NOT_SAVED


async def test_a_server_that_ends_saves_only_what_is_new(
    service: Service, store: MemoryStore, profile: Profile
) -> None:
    session = (await run(service, "set x 1")).session_id
    await rest(service)
    before = store.data
    await service.keeping.end()
    assert (store.names, store.data) == ([session], before)
    async with another_server(profile, store) as other:
        again = await run(other, "get x", session_id=session)
        assert (again.result, again.notes[0].facts["lost"]) == ("1", False)


async def test_after_16_layers_a_state_is_whole_again(
    service: Service, engine: KeepingEngine, store: MemoryStore, profile: Profile
) -> None:
    session, found = service.sessions.open(USER, "script"), list[int]()
    for number in range(36):
        await run(service, f"set x{number} {number}", session_id=session)
        await rest(service)
        found.append(layers(store, session))
        assert (store.names, len(store.data)) == ([f"{session}.live"], found[-1])
    assert found == [number % 16 + 1 for number in range(36)]
    for number in (0, 15, 16, 31, 32, 35):
        assert await saved(profile, store, session, f"x{number}") == str(number)


async def test_a_sandbox_that_is_lost_returns_to_the_last_checkpoint_and_the_next_one_is_whole(
    service: Service, engine: KeepingEngine, store: MemoryStore, profile: Profile
) -> None:
    session = (await run(service, "set x 1")).session_id
    await rest(service)
    await run(service, "set y 2", session_id=session)
    await rest(service)
    store.failure = "the disk is full"
    await run(service, "set x 3", session_id=session)
    await rest(service)
    store.failure = ""
    assert layers(store, session) == 2
    await engine.live["memory-1"].kill()
    back = await run(service, "get x", session_id=session)
    assert (back.result, codes(back), engine.layers) == ("1", ["not_saved", "opened_again"], ["memory-2"] * 2)
    assert "after run 2" in back.notes[1] and back.notes[1].facts["lost"] is True
    await rest(service)
    assert (store.names, layers(store, session)) == ([f"{session}.live"], 1)
    assert [await saved(profile, store, session, name) for name in "xy"] == ["1", "2"]
    assert (await run(service, "get y", session_id=session)).result == "2"


async def test_one_that_was_woken_and_never_used_still_announces_the_loss_after_it_was_idle_again(
    profile: Profile, store: MemoryStore
) -> None:
    async with another_server(profile, store) as killed:
        session = (await run(killed, "set x 1")).session_id
        await rest(killed)
        before = dict(store.objects)
    store.objects = before
    async with another_server(profile, store) as other:
        for _ in range(2):
            await other.keeping.wake(USER, session)
            await put_aside(other, session)
            assert store.objects == before
        await other.keeping.wake(USER, session)
    assert store.objects == before  # nor if the server ends
    async with another_server(profile, store) as last:
        again = await run(last, "get x", session_id=session)
        assert (again.result, codes(again), again.notes[0].facts["lost"]) == ("1", ["opened_again"], True)


async def test_the_end_of_a_server_interrupts_code_but_never_what_saves(
    service: Service, store: MemoryStore, profile: Profile
) -> None:
    code, idle, saving = [(await run(service, "set x 1")).session_id for _ in range(3)]
    await rest(service)
    results: list[Execution] = []

    async def use() -> None:
        results.append(await run(service, "sleep 20\nset x 3", session_id=code))

    async def slow(name: str) -> None:
        if name == "save variables" and anyio.current_time() < began + SAVE / 2:  # it goes on when code is interrupted
            await anyio.sleep(0.7 * SAVE)

    began = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(use)
        store.steps.before = slow
        await run(service, "set x 2", session_id=saving)
        await anyio.sleep(1)  # its checkpoint has begun
        began = anyio.current_time()
        await service.keeping.end()
        assert anyio.current_time() - began == pytest.approx(0.7 * SAVE, abs=1)
    store.steps.before = None
    assert [result.status for result in results] == ["cancelled"]
    assert store.names == sorted([code, idle, saving])
    assert [layers(store, session) for session in (code, idle, saving)] == [1, 1, 2]
    assert [store.manifest(session).interrupted for session in (code, idle, saving)] == [True, False, False]
    async with another_server(profile, store) as other:
        for session, expected in ((code, "1"), (idle, "1"), (saving, "2")):
            found = await run(other, "get x", session_id=session)
            assert (found.result, codes(found)) == (expected, ["opened_again", *["interrupted"] * (session == code)])


@pytest.mark.parametrize("point", [point for point in POINTS if point != "begin"])
async def test_a_server_that_ends_during_a_checkpoint_saves_all(
    service: Service, store: MemoryStore, profile: Profile, point: str
) -> None:
    session = (await run(service, "set x 1")).session_id
    await rest(service)
    gate = Gate(store.steps, point)
    await run(service, "set x 2", session_id=session)
    await gate.reached.wait()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(service.keeping.end)
        await anyio.sleep(1)
        gate.opened.set()
    async with another_server(profile, store) as other:
        found = await run(other, "get x", session_id=session)
        assert (found.result, codes(found), found.notes[0].facts["lost"]) == ("2", ["opened_again"], False)


# Two servers


async def test_a_server_whose_session_went_on_in_another_one_saves_it_as_a_whole(
    service: Service, store: MemoryStore, profile: Profile
) -> None:
    session = (await run(service, "set x 1")).session_id
    await rest(service)
    async with another_server(profile, store) as other:
        assert (await run(other, "set y 2\nget x", session_id=session)).result == "1"
        await rest(other)
        await run(service, "set z 3", session_id=session)
        await rest(service)
        assert [await saved(profile, store, session, name) for name in "xyz"] == ["1", None, "3"]
        await run(other, "set y 4", session_id=session)
        await rest(other)
        assert [await saved(profile, store, session, name) for name in "xyz"] == ["1", "4", None]
    await run(service, "get x", session_id=session)
    await put_aside(service, session)  # with nothing new
    assert [await saved(profile, store, session, name) for name in "xyz"] == ["1", None, "3"]


async def test_a_server_whose_state_was_removed_by_another_one_saves_it_as_a_whole(
    service: Service, store: MemoryStore, profile: Profile
) -> None:
    session = (await run(service, "set x 1")).session_id
    await rest(service)
    store.objects.clear()  # it was beyond the bounds there
    await run(service, "set y 2", session_id=session)
    await rest(service)
    assert [await saved(profile, store, session, name) for name in "xy"] == ["1", "2"]
    store.objects.clear()
    await put_aside(service, session)
    assert await value(service, session) == "1"


async def test_a_checkpoint_that_cannot_be_interrupted_costs_no_more_than_what_came_after_the_last_one(
    service: Service, store: MemoryStore
) -> None:
    session = (await run(service, "set x 1")).session_id
    await rest(service)
    hung = anyio.Event()

    async def hang(name: str) -> None:
        if name == "save variables":
            hung.set()
            with anyio.CancelScope(shield=True):
                await anyio.sleep(60)

    store.steps.before = hang
    await run(service, "set x 2", session_id=session)
    await hung.wait()
    again = await run(service, "get x", session_id=session)
    assert (again.result, codes(again)) == ("1", ["opened_again"])
    assert again.notes[0].facts["lost"] is True


async def test_the_end_of_a_server_takes_a_checkpoint_that_cannot_be_interrupted_for_no_code(
    service: Service, store: MemoryStore, profile: Profile
) -> None:
    session = (await run(service, "set x 1")).session_id
    await rest(service)
    hung = anyio.Event()

    async def hang(name: str) -> None:
        if name == "complete" and not hung.is_set():
            hung.set()
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.7 * SAVE)

    store.steps.before = hang
    await run(service, "set x 2", session_id=session)
    await hung.wait()
    await service.keeping.end()
    store.steps.before = None
    async with another_server(profile, store) as other:
        found = await run(other, "get x", session_id=session)
        assert (found.result, codes(found)) == ("2", ["opened_again"])
