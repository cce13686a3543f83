"""What lets sessions go: those that are idle, and those that make room, are put aside before they are closed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from llm_sandbox_mcp.aio.tasks import open_tasks
from llm_sandbox_mcp.base.errors import CapacityReached, Unavailable, UnknownSession
from llm_sandbox_mcp.base.principal import USER
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.sessions.live import LiveSessions
from llm_sandbox_mcp.sessions.session import Session
from tests.memory.backend import MemoryBackend
from tests.unit.policies import POLICY

from .pools import Warming, opened

pytestmark = pytest.mark.anyio

IDLE = 100.0


class Aside:
    """Puts sessions aside as the test says."""

    def __init__(self) -> None:
        self.live: LiveSessions | None = None
        self.asked: list[str] = []
        self.gate = anyio.Event()
        self.problem = ""
        self.error: Exception | None = None

    async def __call__(self, session: Session) -> str:
        self.asked.append(session.id)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        if self.problem or session.busy or session.closed:
            return self.problem
        async with session.exclusive():
            assert self.live is not None
            self.live.close(session.id)
        return ""


@asynccontextmanager
async def sessions_of(aside: Aside, most: int = 20) -> AsyncIterator[LiveSessions]:
    limits = load_profile().sessions.model_copy(update={"max": most, "idle_timeout": IDLE, "starts_per_second": 1000.0})
    async with opened(MemoryBackend(), Warming(), max=50) as pool, open_tasks() as tasks:
        aside.live = LiveSessions(pool, limits, tasks)
        aside.live.put_aside = aside
        yield aside.live
        tasks.cancel_scope.cancel()


async def used(live: LiveSessions, session_id: str = "") -> Session:
    """A session that was used."""
    session = live.open("script", POLICY, USER, session_id)
    async with session.exclusive():
        await anyio.lowlevel.checkpoint()
    return session


async def test_the_oldest_makes_room_and_the_new_one_opens_at_once() -> None:
    aside = Aside()
    async with sessions_of(aside, 2) as live:
        first, second = await used(live), await used(live)
        third = await used(live)
        await anyio.sleep(1)
        assert aside.asked == [first.id]
        assert [info.id for info in live.infos()] == [first.id, second.id, third.id]
        aside.gate.set()
        await anyio.sleep(1)
        assert [info.id for info in live.infos()] == [second.id, third.id]


async def test_eight_at_once_make_room_and_no_more() -> None:
    aside = Aside()
    async with sessions_of(aside, 10) as live:
        old = [await used(live) for _ in range(10)]
        for _ in range(8):
            await used(live)
        for _ in range(2):
            with pytest.raises(CapacityReached, match="all 10 sessions are busy, or were used more than once"):
                live.open("script", POLICY, USER)
        assert aside.asked == [session.id for session in old[:8]]
        aside.gate.set()
        await anyio.sleep(1)
        assert len(live.infos()) == 10
        await used(live)
        await anyio.sleep(1)
        assert (len(live.infos()), old[8].closed, old[9].closed) == (10, True, False)


@pytest.mark.parametrize("how", ["problem", "error"])
async def test_one_that_makes_room_and_cannot_be_put_aside_is_closed_with_the_reason(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    aside = Aside()
    aside.gate.set()
    if how == "problem":
        aside.problem = "the disk is full"
    else:
        aside.error = ZeroDivisionError()
    async with sessions_of(aside, 1) as live:
        first = await used(live)
        second = await used(live)
        await anyio.sleep(1)
        assert (first.closed, second.closed) == (True, False)
        reason = aside.problem or "an unexpected error"
        with pytest.raises(UnknownSession, match=f"it was idle, and could not be saved: {reason}"):
            live.get(first.id)
        assert f"a session could not be put aside: {reason}" in caplog.messages
        assert ("a session could not be put aside" in caplog.messages) == (how == "error")


async def test_one_that_is_used_again_while_it_cannot_be_put_aside_is_not_closed() -> None:
    aside = Aside()
    aside.problem = "the disk is full"
    async with sessions_of(aside, 1) as live:
        first = await used(live)
        await used(live)
        async with first.exclusive():
            aside.gate.set()
            await anyio.sleep(1)
        assert not first.closed


async def test_a_session_that_is_closed_while_it_is_put_aside_and_opened_again_is_another_one() -> None:
    aside = Aside()
    async with sessions_of(aside) as live:
        first = await used(live)
        await anyio.sleep(IDLE + 1)
        live.close(first.id)
        second = await used(live, first.id)
        await anyio.sleep(IDLE + 1)
        assert aside.asked == [first.id] * 2
        aside.gate.set()
        await anyio.sleep(1)
        assert second.closed
        third = await used(live)  # the sessions of the server go on
        assert third.id in live


async def test_while_a_session_is_put_aside_others_expire_in_time() -> None:
    aside = Aside()
    async with sessions_of(aside) as live:
        first = await used(live)
        await anyio.sleep(IDLE / 2)
        second = await used(live)
        await anyio.sleep(IDLE / 2 + 1)
        assert aside.asked == [first.id]
        await anyio.sleep(IDLE / 2)
        assert aside.asked == [first.id, second.id]


async def test_once_the_server_ends_no_session_opens_and_each_has_one_use_left() -> None:
    aside = Aside()
    async with sessions_of(aside) as live:
        first, second, third = [await used(live) for _ in range(3)]
        async with first.exclusive():
            assert live.end() == [first, third, second]
            assert live.end() == [first, third, second]
        with pytest.raises(Unavailable, match="the server is ending; try again when it is back"):
            live.open("script", POLICY, USER)
        with pytest.raises(Unavailable, match="the server is ending"):
            async with second.exclusive():
                pass
        async with second.exclusive(last=True):
            pass
        await anyio.sleep(2 * IDLE)
        assert (aside.asked, len(live.infos())) == ([], 3)  # what is saved last is not let go before
        live.close(third.id)
        with pytest.raises(UnknownSession):
            async with third.exclusive(last=True):
                pass
