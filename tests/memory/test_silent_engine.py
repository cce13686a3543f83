"""An engine that passes nothing on at the end of a run: the code is not blamed, and its session keeps its state."""

import anyio
import pytest

from llm_sandbox_mcp.base.errors import EngineSilent, EngineUnavailable
from llm_sandbox_mcp.service import Service
from tests.memory.backend import MemoryBackend, MemorySandbox

from .conftest import run

pytestmark = pytest.mark.anyio

UNKNOWN = "memory does not answer, and what the code did is unknown; once it answers, go on in the same session"


async def with_state(service: Service, engine: MemoryBackend) -> tuple[str, MemorySandbox]:
    session = (await run(service, "set x 41")).session_id
    (sandbox,) = engine.live.values()
    return session, sandbox


@pytest.mark.parametrize("code", ["set y 1", "sleep 1000", "print " + "x" * 100], ids=["ends", "goes on", "prints"])
async def test_a_session_keeps_its_state_while_its_engine_is_silent(
    service: Service, engine: MemoryBackend, code: str
) -> None:
    session, sandbox = await with_state(service, engine)
    sandbox.fall_silent()
    with pytest.raises(EngineSilent, match=UNKNOWN):
        await run(service, code, session_id=session)
    for _ in range(3):
        with pytest.raises(
            EngineUnavailable,
            match="memory does not answer, so nothing was done, and the session keeps its state; wait",
        ):
            await run(service, "get x", session_id=session)
    sandbox.speak()
    again = await run(service, "get x", session_id=session)
    assert (again.result, again.stdout.text, again.notes) == ("41", "", ())


async def test_an_engine_that_continues_while_it_is_asked_costs_no_state(
    service: Service, engine: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, sandbox = await with_state(service, engine)

    async def continues() -> None:
        await anyio.sleep(2)
        sandbox.speak()

    monkeypatch.setattr(sandbox, "silence", continues)
    sandbox.fall_silent()
    late = await run(service, "sleep 1000", session_id=session)
    assert (late.status, late.session_state) == ("timeout", "kept")
    assert (await run(service, "get x", session_id=session)).result == "41"


async def test_code_that_does_not_stop_once_the_engine_is_back_is_killed(
    service: Service, engine: MemoryBackend
) -> None:
    session, sandbox = await with_state(service, engine)
    sandbox.fall_silent()
    with pytest.raises(EngineSilent):
        await run(service, "deaf\nsleep 1000", session_id=session)
    sandbox.speak()
    again = await run(service, "get x", session_id=session)
    assert again.result is None
    assert any("the code did not stop when it was interrupted and was killed" in note for note in again.notes)


async def test_an_interpreter_that_ended_meanwhile_is_replaced(service: Service, engine: MemoryBackend) -> None:
    session, sandbox = await with_state(service, engine)
    sandbox.fall_silent()

    with pytest.raises(EngineSilent):
        await run(service, "sleep 1000", session_id=session)
    sandbox.speak()
    sandbox.processes[0].end(7)
    again = await run(service, "get x", session_id=session)
    assert again.result is None
    assert any("the interpreter of script ended; its variables are lost" in note for note in again.notes)


async def test_a_run_that_its_caller_gives_up_keeps_its_state_too(service: Service, engine: MemoryBackend) -> None:
    session, sandbox = await with_state(service, engine)
    sandbox.fall_silent()
    with anyio.move_on_after(1):
        await run(service, "sleep 2", session_id=session)
    sandbox.speak()
    assert (await run(service, "get x", session_id=session)).result == "41"


async def test_a_session_of_a_silent_engine_can_be_reset_and_closed(service: Service, engine: MemoryBackend) -> None:
    session, sandbox = await with_state(service, engine)
    sandbox.fall_silent()
    with pytest.raises(EngineSilent):
        await run(service, "set x 42", session_id=session)
    await service.sessions.reset(session)
    assert (await run(service, "get x", session_id=session)).result is None
    (other,) = (made for made in engine.live.values() if made is not sandbox)
    other.fall_silent()
    with pytest.raises(EngineSilent):
        await run(service, "set x 42", session_id=session)
    await service.sessions.close(session)
    assert not service.sessions.list()
