"""Mishaps that hit a running server from outside: it continues to work, and reports what was lost."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from mcp import Client

from .processes import below, gone, watch_children
from .results import answer
from .serving import Server, start, stop

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("embedded")]

BOUND = 90.0
MODERN = "2026-07-28"
ENDLESS = "print('on', flush=True)\nwhile True: pass"
CLOCK = """
import itertools, os, time

day, true = 86400.0, time.time
leaps = itertools.cycle([0.0, 40 * day, -40 * day])
time.time = lambda: true() + next(leaps)
open(os.environ["LEAPT"], "w").close()
"""
"""A clock that jumps 40 days forward or back from one call to the next; on a suspended machine it jumps only once."""


@pytest.fixture
def server(profile: Path) -> Iterator[Server]:
    server = start(profile)
    try:
        yield server
    finally:
        stop(server)


def launcher(server: Server) -> int:
    """The process that is the parent of all sandboxes."""
    named = {pid for pid in below(server.process.pid) if b"launcher" in Path(f"/proc/{pid}/cmdline").read_bytes()}
    (found,) = (
        pid for pid in named if not named.isdisjoint(below(pid)) or len(named) == 1
    )  # the other is a part of it
    return found


async def test_a_session_whose_launcher_was_killed_starts_fresh_and_reports_it(server: Server) -> None:
    with anyio.fail_after(BOUND):
        async with server.connect(MODERN) as client:
            session = (await answer(client, "execute_code", code="kept = 1"))["session_id"]
            with watch_children(server.process.pid) as watched:
                os.kill(launcher(server), signal.SIGKILL)
                await gone(watched)
            again = await answer(client, "execute_code", code="'kept' in globals()", session_id=session)
            assert again["result"] == "False"
            assert any("started fresh" in note for note in again["notes"]), again
            assert await works(client)


async def test_a_run_whose_launcher_is_killed_ends_with_an_error_that_says_so(server: Server) -> None:
    printed = anyio.Event()

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        printed.set()

    async def kill() -> None:
        await printed.wait()
        os.kill(launcher(server), signal.SIGKILL)

    with anyio.fail_after(BOUND):
        async with server.connect(MODERN) as client, anyio.create_task_group() as tasks:
            tasks.start_soon(kill)
            lost = await client.call_tool("execute_code", {"code": ENDLESS}, progress_callback=progressed)
            assert lost.is_error
            assert "sandbox" in str(lost.content), lost
            assert await works(client)


async def works(client: Client) -> bool:
    found = await answer(client, "execute_code", code="print(6 * 7)", keep_session=False)
    return bool(found["stdout"] == "42\n")


async def test_a_clock_that_jumps_changes_nothing(
    profile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(CLOCK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("LEAPT", str(tmp_path / "leapt"))
    server = start(profile)
    try:
        with anyio.fail_after(BOUND):
            async with server.connect(MODERN) as client:
                session = (await answer(client, "execute_code", code="count = 0"))["session_id"]
                for number in range(1, 20):
                    code = f"open('{number}.csv', 'w').write('a') and None; count += 1; count"
                    found = await answer(client, "execute_code", code=code, session_id=session)
                    assert found["result"] == str(number)
                    assert await works(client)
                    assert [artifact["name"] for artifact in found["artifacts"]] == [f"{number}.csv"]
                found = await answer(client, "execute_code", code=ENDLESS, session_id=session, timeout_seconds=0.5)
                assert found["status"] == "timeout"
    finally:
        said = stop(server)
    assert (tmp_path / "leapt").exists()
    assert "Traceback" not in said
