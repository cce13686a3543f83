"""Sessions and pool, under any calls in any order."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import anyio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from llm_sandbox_mcp.base.errors import EngineUnavailable, SandboxLost, Unavailable
from llm_sandbox_mcp.base.results import Execution
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.profiles import small_profile
from tests.effort import tries
from tests.memory.backend import HANDLERS, MemoryBackend, open_in_memory
from tests.memory.clock import JumpingLoop

from .conftest import run

T = TypeVar("T")

IDLE = 100.0
"""Seconds that a session may be idle, on a clock that jumps."""
MOST = 3
TABLES: Mapping[str, Mapping[str, object]] = {
    "handlers": {"folders": (str(HANDLERS),)},
    "sessions": {"max": MOST, "idle_timeout": IDLE},
    "pool": {"languages": ("script",), "min": 1, "max": MOST + 1, "exhaustion": "fail_fast"},
}

KEEP = ("fail", "sleep 1000", "flood", "garble", "fill", "fork", "print x")
"""Code after which variables are kept."""
LOSE = ("deaf\nsleep 1000", "exit 0", "exit 7", "outgrow", "crowd 1000000", "hide")
"""Code after which variables are lost."""


@dataclass
class Known:
    """What the test knows about a session."""

    x: str | None
    used: float


class Sessions(RuleBasedStateMachine):
    """One service; `known` is the state that its sessions must have."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=JumpingLoop)
        self.engine = MemoryBackend()
        self.service: Service
        self.closing = asyncio.Event()
        self.serving = self.runner.run(self.begin())
        self.known: dict[str, Known] = {}

    async def begin(self) -> asyncio.Task[None]:
        opened = asyncio.Event()
        serving = asyncio.create_task(self.serve(opened))
        await asyncio.wait([serving, asyncio.create_task(opened.wait())], return_when=asyncio.FIRST_COMPLETED)
        return serving

    async def serve(self, opened: asyncio.Event) -> None:
        with tempfile.TemporaryDirectory() as folder:
            profile = small_profile("embedded", Path(folder), **TABLES)
            async with open_in_memory(profile, self.engine) as self.service:
                opened.set()
                await self.closing.wait()

    def teardown(self) -> None:
        self.closing.set()
        self.call(lambda: self.serving)
        self.runner.close()
        assert not self.engine.live

    def call(self, act: Callable[[], Awaitable[T]]) -> T:
        """The result of a call; meanwhile the service's tasks and its clock go on."""

        async def called() -> T:
            return await act()

        return self.runner.run(called())

    def now(self) -> float:
        return self.runner.get_loop().time()

    def run(self, code: str, session: str) -> Execution:
        return self.call(lambda: run(self.service, code, session_id=session, timeout=5))

    def listed(self) -> set[str]:
        async def ids() -> set[str]:
            return {info.id for info in self.service.sessions.list()}

        return self.call(ids)

    def forget_expired(self) -> None:
        live = self.listed()
        now = self.now()
        for session in self.known.keys() - live:
            assert now - self.known.pop(session).used >= IDLE

    @rule(code=st.sampled_from([*KEEP, *LOSE, "set x first"]))
    def open(self, code: str) -> None:
        before = self.listed()
        try:
            result = self.run(code, "")
        except Unavailable:
            assert self.engine.failure is not None
        else:
            kept = "first" if code == "set x first" else None
            self.known[result.session_id] = Known(kept, self.now())
        gone = before - self.listed()
        assert len(gone) <= 1
        if gone:
            assert len(before) == MOST
            del self.known[gone.pop()]

    @precondition(lambda self: self.known)
    @rule(data=st.data(), code=st.sampled_from([*KEEP, *LOSE, "set x again", "die"]))
    def use(self, data: st.DataObject, code: str) -> None:
        session = data.draw(st.sampled_from([*self.known]))
        known = self.known[session]
        try:
            result = self.run(code, session)
        except SandboxLost:
            assert code == "die"
            known.x = None
        except Unavailable:
            assert self.engine.failure is not None
            return
        else:
            # A sandbox that ended with a full disk is reported as a disk limit.
            lost = code in LOSE or (code == "die" and result.status == "disk_limit")
            known.x = "again" if code == "set x again" else None if lost else known.x
            assert result.session_state == ("fresh" if lost else "kept"), result
        known.used = self.now()

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from([*self.known]))
        try:
            result = self.run("get x", session)
        except Unavailable:
            assert self.engine.failure is not None
            return
        assert (result.status, result.result) == ("ok", self.known[session].x), result
        self.known[session].used = self.now()

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def reset(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from([*self.known]))
        self.call(lambda: self.service.sessions.reset(session))
        self.known[session] = Known(None, self.now())

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from([*self.known]))
        self.call(lambda: self.service.sessions.close(session))
        del self.known[session]

    @rule(seconds=st.sampled_from([1.0, 0.4 * IDLE, 2 * IDLE]))
    def wait(self, seconds: float) -> None:
        self.call(lambda: anyio.sleep(seconds))
        self.forget_expired()

    @rule()
    def fail_or_work(self) -> None:
        self.engine.failure = None if self.engine.failure else EngineUnavailable("it is off", "switch it on")

    @invariant()
    def nothing_exceeds_its_limit(self) -> None:
        self.forget_expired()
        assert self.listed() == self.known.keys()
        assert len(self.engine.live) <= MOST + 1
        counts = self.service.pool()
        assert counts.leased <= len(self.known)
        assert counts.warm + counts.warming + counts.leased + counts.closing <= MOST + 1


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=tries(20), stateful_step_count=25)
