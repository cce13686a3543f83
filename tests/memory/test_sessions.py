"""Sessions: their number and age, and the limits that callers cannot raise."""

import anyio
import pytest

from llm_sandbox_mcp.errors import CapacityReached, InvalidArgument, PolicyDenied, UnknownSession
from llm_sandbox_mcp.profile import Profile
from llm_sandbox_mcp.results import Execution
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.memory import MemoryBackend
from llm_sandbox_mcp.wiring import open_service

from .conftest import run

pytestmark = pytest.mark.anyio


async def test_a_run_that_does_not_keep_its_session_leaves_none(service: Service) -> None:
    result = await run(service, "set x 1", keep_session=False)
    assert result.session_state == "ended"
    assert service.sessions.list() == ()
    with pytest.raises(UnknownSession):
        await run(service, "set x 1", session_id=result.session_id)


@pytest.mark.parametrize("session_id", ["x", "0" * 32, "../..", " ", "\0"])
async def test_an_unknown_id_is_one_clear_error(service: Service, session_id: str) -> None:
    with pytest.raises(UnknownSession, match="open another session") as raised:
        await run(service, "set x 1", session_id=session_id)
    assert "\n" not in str(raised.value)


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
