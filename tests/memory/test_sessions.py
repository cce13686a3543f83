"""Sessions: their number and age, and the limits that callers cannot raise."""

from contextlib import suppress
from dataclasses import replace
from functools import partial

import anyio
import pytest

from llm_sandbox_mcp.backends.layout import FIGURES
from llm_sandbox_mcp.base.errors import (
    CapacityReached,
    InvalidArgument,
    PolicyDenied,
    SandboxLost,
    StartFailed,
    UnknownRun,
    UnknownSession,
)
from llm_sandbox_mcp.base.principal import ANONYMOUS
from llm_sandbox_mcp.base.results import Execution, Library
from llm_sandbox_mcp.languages.languages import included_languages, load_languages
from llm_sandbox_mcp.languages.places import Places
from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.runs.interpreter import start_interpreter
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.service.ask import Ask
from llm_sandbox_mcp.testing.asking import open_session, start
from llm_sandbox_mcp.wiring import open_service
from tests.memory.backend import HANDLERS, PROGRAMS, MemoryBackend, open_in_memory, true
from tests.unit.policies import POLICY

from .conftest import run

pytestmark = pytest.mark.anyio


async def test_a_run_that_does_not_keep_its_session_leaves_none(service: Service) -> None:
    result = await run(service, "set x 1", keep_session=False)
    assert result.session_state == "ended"
    assert service.sessions.list() == ()
    with pytest.raises(UnknownSession):
        await run(service, "set x 1", session_id=result.session_id)


async def test_what_waits_for_the_end_of_an_interpreter_is_done_without_a_session_and_named_in_one(
    service: Service,
) -> None:
    result = await run(service, "leave bye\nprint hello", keep_session=False)
    assert (result.stdout.text, result.notes) == ("hello\nbye\n", ())
    result = await run(service, "leave bye\nprint hello")
    assert (result.stdout.text, [note.code for note in result.notes]) == ("hello\n", ["waits"])


@pytest.mark.parametrize("verb", ["exit", "replace"])
async def test_without_a_session_only_a_signal_that_ended_the_interpreter_is_told(service: Service, verb: str) -> None:
    result = await run(service, f"{verb} 5", keep_session=False)
    assert (result.exit_code, result.notes) == (5, ())
    result = await run(service, f"{verb} 143", keep_session=False)
    assert (result.exit_code, result.notes) == (143, ("the interpreter ended with signal SIGTERM",))


@pytest.mark.parametrize("session_id", ["x", "0" * 32, "../..", " ", "\0"])
async def test_an_unknown_id_is_one_clear_error(service: Service, session_id: str) -> None:
    with pytest.raises(UnknownSession, match="open another session") as raised:
        await run(service, "set x 1", session_id=session_id)
    assert "\n" not in str(raised.value)


async def test_the_reason_why_an_id_is_unknown_is_told_apart(service: Service, profile: Profile) -> None:
    first = await run(service, "set x 1")
    started = await start(service, "set x 1", language="script")
    await started.wait()
    await service.sessions.close(first.session_id)
    with pytest.raises(UnknownSession, match=f"session '{first.session_id}' is not open: it was closed, or expired"):
        await run(service, "get x", session_id=first.session_id)
    async with open_in_memory(profile, MemoryBackend()) as again:
        with pytest.raises(UnknownSession, match="is not open: the server has started again since"):
            await run(again, "get x", session_id=first.session_id)
        with pytest.raises(UnknownRun, match="is not known: the server has started again since"):
            again.door.get(started.id)
    changed = first.session_id[:-1] + ("1" if first.session_id[-1] == "0" else "0")
    for never in ("x", "0" * 40, changed, first.session_id + "0", first.session_id.upper() + "\n"):
        with pytest.raises(UnknownSession, match="is not open: it never existed"):
            await run(service, "get x", session_id=never)
        with pytest.raises(UnknownRun, match="is not known: it never existed"):
            service.door.get(never)


async def test_ids_cannot_be_guessed_from_others(service: Service) -> None:
    ids = {open_session(service, "script") for _ in range(10)}
    assert len({found[4:-4] for found in ids}) == 10  # 128 random bits
    assert {len(found) for found in ids} == {40}


LOSSES = {
    "the sandbox ended": ("die", "its sandbox ended; variables and files are lost"),
    "the code was killed": ("deaf\nsleep 1000", "the code was killed; variables and files are lost"),
    "the interpreter ended": ("exit 3", "the interpreter of script ended; its variables are lost, files are kept"),
}


@pytest.mark.parametrize("how", LOSSES)
async def test_a_loss_is_reported_until_a_result_that_reports_it_was_taken(service: Service, how: str) -> None:
    code, reason = LOSSES[how]
    note = f"started fresh: since an earlier run {reason}"
    session = open_session(service, "script")
    for given_up in (code, "get x", "fail 3"):
        found = await start(service, given_up, language="script", session_id=session, timeout=5)
        with suppress(SandboxLost):
            await found.wait()
    with anyio.move_on_after(5):
        await run(service, "sleep 20", session_id=session)
    told = await run(service, "get x", session_id=session)
    assert note in told.notes, told.notes
    assert (await run(service, "get x", session_id=session)).notes == ()


async def test_a_loss_that_the_result_of_its_own_run_reports_is_not_repeated_if_it_was_taken(
    service: Service,
) -> None:
    first = await run(service, "exit 3")
    assert any("variables are lost, files are kept" in note for note in first.notes)
    assert (await run(service, "get x", session_id=first.session_id)).notes == ()


async def test_a_later_loss_is_reported_although_an_earlier_one_for_the_same_reason_was(service: Service) -> None:
    kill = "deaf\nsleep 1000"
    first = await run(service, kill, timeout=5)
    second = await run(service, kill, session_id=first.session_id, timeout=5)
    third = await run(service, "get x", session_id=first.session_id)
    for later in (second, third):
        assert any("started fresh" in note for note in later.notes), later.notes


async def test_a_closed_session_is_gone(service: Service) -> None:
    first = await run(service, "set x 1")
    await service.sessions.close(first.session_id)
    with pytest.raises(UnknownSession, match="closed"):
        await service.sessions.close(first.session_id)


@pytest.mark.parametrize("changes", [{"sessions": {"idle_timeout": 2.0}}])
async def test_an_idle_session_expires_and_a_busy_one_does_not(service: Service) -> None:
    idle = await run(service, "set x 1")
    busy = await run(service, "set done yes\nsleep 6\nget done")
    assert busy.result == "yes"
    with pytest.raises(UnknownSession, match="expired after 2s"):
        await run(service, "set x 1", session_id=idle.session_id)


@pytest.mark.parametrize("changes", [{"sessions": {"max": 2}}])
async def test_the_least_recently_used_idle_session_makes_room(service: Service) -> None:
    first, second = await run(service, "set x 1"), await run(service, "set x 1")
    await run(service, "set x 1", session_id=first.session_id)
    third = await run(service, "set x 1")
    assert {info.id for info in service.sessions.list()} == {first.session_id, third.session_id}
    with pytest.raises(UnknownSession):
        await run(service, "set x 1", session_id=second.session_id)


@pytest.mark.parametrize("changes", [{"sessions": {"max": 1}}])
async def test_when_all_are_busy_none_is_evicted(service: Service) -> None:
    results: list[Execution] = []
    printed = anyio.Event()

    async def on_output(stream: str, text: str) -> None:
        printed.set()

    async def busy() -> None:
        results.append(await run(service, "print x\nsleep 100", on_output=on_output))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(busy)
            await printed.wait()
            with pytest.raises(CapacityReached, match="all 1 sessions are busy"):
                await run(service, "set x 1")
            await service.sessions.interrupt(service.sessions.list()[0].id)
    assert results[0].status == "cancelled"


async def test_an_error_in_the_scope_of_the_service_is_raised_unchanged(profile: Profile) -> None:
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the test is about the end of the scope
        async with open_service(profile, make=lambda *_: MemoryBackend()) as service:
            await run(service, "set x 1")
            raise ZeroDivisionError


@pytest.mark.parametrize("changes", [{"sessions": {"starts_per_second": 0.02}}])
async def test_starting_sandboxes_too_often_is_refused_with_the_time_to_wait(service: Service) -> None:
    session = (await run(service, "set x 1")).session_id
    refusal = r"at most 0\.02 times a second; try again in \d.*, or raise sessions\.starts_per_second in the profile"
    with pytest.raises(CapacityReached, match=refusal):
        await run(service, "set x 1")
    assert (await run(service, "set x 2\nget x", session_id=session)).result == "2"
    # A session that lost its sandbox, or was reset, needs another one.
    await service.sessions.reset(session)
    with pytest.raises(CapacityReached, match=refusal):
        await run(service, "set x 1", session_id=session)
    assert session in {info.id for info in service.sessions.list()}


@pytest.mark.parametrize(
    ("limits", "error", "message"),
    [
        ({"memory": 1 << 50}, PolicyDenied, "memory must be at least 8388608 and at most"),
        ({"memory": 1}, PolicyDenied, "memory must be at least 8388608"),
        ({"pids": 7}, PolicyDenied, "pids must be at least 8"),
        ({"cpu_time": 1e9}, PolicyDenied, "cpu_time must be above 0 and at most"),
        ({"grace": 2.1}, PolicyDenied, "grace must be above 0 and at most 2, the profile's limit; got 2.1"),
        ({"files": 0}, PolicyDenied, "files must be above 0"),
        ({"pids": 8.5}, PolicyDenied, "pids must be a whole number"),
        ({"model_config": 1}, InvalidArgument, "unknown limit 'model_config'; available: memory, "),
        ({"timeout": "5s"}, InvalidArgument, "timeout must be a number of seconds; got '5s'"),
        ({"memory": "1MiB"}, InvalidArgument, "memory must be a number of bytes; got '1MiB'"),
        ({"pids": True}, InvalidArgument, "pids must be a number of processes and threads; got 'True'"),
        ({"disk": 10**400}, PolicyDenied, "the profile's limit; got a number out of range"),
        ({"policy": 1}, InvalidArgument, "unknown limit 'policy'; available: memory, "),
        ({"narrow\n": 1}, InvalidArgument, r"unknown limit 'narrow\\n'; available: memory, "),
    ],
)
async def test_raised_limits_and_unknown_limits_are_refused(
    service: Service, limits: dict[str, float], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        await run(service, "set x 1", limits=limits)
    assert service.sessions.list() == ()


async def test_limits_of_a_running_sandbox_cannot_be_changed(service: Service) -> None:
    session = (await run(service, "set x 1")).session_id
    with pytest.raises(InvalidArgument, match="disk, pids can be lowered for a new session only; open another session"):
        await run(service, "set x 1", session_id=session, limits={"pids": 1, "disk": 1, "cpu_time": 1})


async def test_clearing_a_session_deletes_its_artifacts_and_figures_and_keeps_its_state(
    service: Service, engine: MemoryBackend
) -> None:
    engine.programs = {**PROGRAMS, "find": true}
    session = open_session(service, "script")
    await service.sessions.clear(session)
    assert not engine.live  # for an empty session, no sandbox is made
    first = await run(service, "set x 1\nflood", session_id=session)
    assert [artifact.name for artifact in first.artifacts] == ["run-1-stdout.txt"]
    await service.sessions.clear(session)
    (sandbox,) = engine.live.values()
    assert [process.argv for process in sandbox.processes if process.argv[0] == "find"] == [
        ("find", FIGURES, "-mindepth", "1", "-delete")
    ]
    assert service.files.artifacts(session) == ()
    assert (await run(service, "get x", session_id=session)).result == "1"
    # What a session that has ended left can be deleted too, once.
    await run(service, "flood", session_id=session)
    await service.sessions.close(session)
    await service.sessions.clear(session)
    with pytest.raises(UnknownSession):
        await service.sessions.clear(session)


@pytest.mark.parametrize("ran", [True, False])
async def test_a_refreshed_interpreter_has_run_nothing_and_one_that_has_not_is_kept(
    service: Service, engine: MemoryBackend, ran: bool
) -> None:
    session = open_session(service, "script")
    await service.sessions.refresh(session, "script")
    if ran:
        await run(service, "set x 1", session_id=session)
        assert (await run(service, "get x", session_id=session)).result == "1"
    for _ in range(2):
        await service.sessions.refresh(session, "script")
        assert len([process for process in engine.live["memory-1"].processes if process.running]) == 1
    assert len(engine.live["memory-1"].processes) == (2 if ran else 1)
    assert (await run(service, "get x", session_id=session)).result is None


async def test_a_restart_ends_what_runs_and_the_interpreters_and_keeps_the_sandbox(
    service: Service, engine: MemoryBackend
) -> None:
    session = (await run(service, "set x 1")).session_id
    ended: list[Execution] = []

    async def busy() -> None:
        ended.append(await run(service, "sleep 1000", session_id=session))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(busy)
        await anyio.sleep(1)
        await service.sessions.restart(session)
    assert [one.status for one in ended] == ["cancelled"]
    again = await run(service, "get x", session_id=session)
    assert (again.result, again.notes, again.session_state) == (None, (), "kept")
    assert len(engine.live) == 1
    assert [process.running for process in engine.live["memory-1"].processes] == [False, True]


@pytest.mark.parametrize("pause", [0.0, 5.0])
async def test_a_run_waits_for_a_refresh_even_during_its_pause(service: Service, pause: float) -> None:
    session = open_session(service, "script")
    begun = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(service.sessions.refresh, session, "script", pause=pause))
        await anyio.lowlevel.checkpoint()
        await run(service, "print x", session_id=session)
    assert anyio.current_time() - begun == pytest.approx(pause, abs=0.5)


@pytest.mark.parametrize("environment", [True, False])
@pytest.mark.parametrize("install", ["apt-get install mine", ""])
@pytest.mark.parametrize("image", ["debian", ""])
async def test_a_missing_program_is_named_with_what_helps_there(image: str, install: str, environment: bool) -> None:
    script = load_languages([str(HANDLERS)])["script"]
    parts = {
        "requires": script.handler.requires.model_copy(update={"commands": ("script", "mine"), "install": install}),
        "environment": included_languages()["python"].handler.environment if environment else None,
    }
    language = replace(script, handler=script.handler.model_copy(update=parts))
    async with MemoryBackend().sandbox(POLICY) as sandbox:
        sandbox.image = image
        with pytest.raises(StartFailed, match=f"^script needs mine, which {sandbox.origin} does not have;") as raised:
            await start_interpreter(sandbox, Places(language))
    step = raised.value.step
    if not image:
        assert step == (install or "install it")
    else:
        assert step.startswith("use a separate session for script, or build its image")
        assert ("containers.environment" in step) == environment


async def test_libraries_may_come_before_the_interpreter_that_uses_them(service: Service) -> None:
    ask = Ask(caller=ANONYMOUS, code="print x", language="script")
    session = service.sessions.of(await service.door.check(ask))
    await session.use_libraries("script", (Library("a", "1"),))
    assert (await run(service, "print x", session_id=session.id)).stdout.text == "x\n"
    await session.use_libraries("script", ())
