"""Sessions by name: which are remembered, and for how long."""

import anyio
import pytest

from llm_sandbox_mcp.base.principal import ANONYMOUS, TOKEN
from llm_sandbox_mcp.compat.rest.sessions import NamedSessions
from llm_sandbox_mcp.service import Service

pytestmark = pytest.mark.anyio


@pytest.fixture
def changes() -> dict[str, dict[str, object]]:
    return {"sessions": {"max": 3, "starts_per_second": 1000.0}}


async def use(service: Service, named: NamedSessions, name: str) -> list[str]:
    """Uses the session of that name, and returns the notes."""

    async def act(session_id: str) -> None:
        assert service.sessions.is_open(session_id)

    with named.using(name, ANONYMOUS) as found:
        _, notes = await named.use(found, act)
    return notes


async def test_a_request_that_is_refused_leaves_nothing(service: Service) -> None:
    named = NamedSessions(service)
    with named.using("one", ANONYMOUS) as found:
        assert named.find("one") is found
    assert named.find("one") is None
    assert service.sessions.list() == ()


async def test_requests_at_the_same_time_open_one_session(service: Service) -> None:
    named = NamedSessions(service)
    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(use, service, named, "one")
    assert len(service.sessions.list()) == 1


async def test_names_of_live_sessions_are_not_forgotten_and_others_in_turn(service: Service) -> None:
    named = NamedSessions(service)
    await use(service, named, "alive")
    for number in range(300):
        [note] = await use(service, named, str(number))
        assert note.startswith(f"session {number} is new")
        found = named.find(str(number))
        assert found
        await service.sessions.close(found.session_id)
    assert await use(service, named, "alive") == []
    assert named.find("0") is None
    [note] = await use(service, named, "299")
    assert note.startswith("started fresh: session 299 was closed")


async def test_a_name_in_use_is_not_forgotten(service: Service) -> None:
    named = NamedSessions(service)
    with named.using("mine", ANONYMOUS) as mine:
        for number in range(300):
            await use(service, named, str(number))
        assert named.find("mine") is mine
    assert named.find("mine") is None


async def _nothing(_session_id: str) -> None:
    pass


async def test_a_session_belongs_to_who_gave_its_name(service: Service) -> None:
    named = NamedSessions(service)
    for caller in (TOKEN, ANONYMOUS):
        with named.using("one", caller) as found:
            await named.use(found, _nothing)
            assert found.owner == TOKEN
    [session] = service.sessions.list()
    assert session.owner == TOKEN
