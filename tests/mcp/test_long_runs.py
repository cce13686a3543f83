"""Runs that take longer than a call: they go on, and `manage_session` finds them again; on real sandboxes."""

import sys
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client

from .results import answer, call, refusal, text
from .serving import Server

pytestmark = pytest.mark.anyio

ENDLESS = "print('on', flush=True)\nwhile True: pass"


@pytest.fixture(autouse=True)
async def _bounded() -> AsyncIterator[None]:
    with anyio.fail_after(60):
        yield


@pytest.fixture(scope="module")
async def apart(anyio_backend: str, era: str) -> AsyncIterator[Client]:
    """A client of a server in another process; each test closes its session."""
    program = StdioServerParameters(command=sys.executable, args=["-m", "llm_sandbox_mcp", "serve"])
    async with Client(stdio_client(program), mode=era) as client:
        yield client


async def run(client: Client, code: str, **arguments: Any) -> dict[str, Any]:
    return await answer(client, "execute_code", code=code, timeout_seconds=300, **arguments)


async def manage(client: Client, action: str, run_id: str, **arguments: Any) -> dict[str, Any]:
    """What `manage_session` says about a run."""
    found: dict[str, Any] = (await answer(client, "manage_session", action=action, run_id=run_id, **arguments))["run"]
    return found


async def printed(client: Client, begun: dict[str, Any]) -> str:
    """The first output of a run, as soon as there is some; it can be in the first answer already."""
    found = begun
    while not found["stdout"]:
        assert found["status"] == "running"
        found = await manage(client, "wait", begun["run_id"], wait_seconds=0.05)
    return str(found["stdout"])


async def test_a_run_that_takes_longer_than_the_call_is_found_again(client: Client) -> None:
    code = "import time\nprint('on', flush=True)\ntime.sleep(1)\nprint('done')\nx = 7\nx"
    result = await call(client, "execute_code", code=code, wait_seconds=0)
    assert result.structured_content is not None
    begun = result.structured_content
    assert (begun["status"], begun["exit_code"]) == ("running", -1)
    assert text(result).startswith("status: running for ")
    assert f"run: {begun['run_id']}\nsession: {begun['session_id']}" in text(result)
    [listed] = (await answer(client, "manage_session", action="list"))["sessions"]
    assert (listed["session_id"], listed["run_ids"]) == (begun["session_id"], [begun["run_id"]])
    ended = await manage(client, "wait", begun["run_id"])
    assert (ended["status"], ended["stdout"], ended["result"]) == ("ok", "on\ndone\n", "7")
    assert (await run(client, "x", session_id=begun["session_id"]))["result"] == "7"


@pytest.mark.one_protocol
async def test_new_output_is_read_once(client: Client) -> None:
    begun = await run(client, ENDLESS, wait_seconds=0)
    assert await printed(client, begun) == "on\n"
    assert (await manage(client, "read", begun["run_id"]))["stdout"] == ""
    ended = await manage(client, "cancel", begun["run_id"])
    assert (ended["status"], ended["stdout"], ended["session_state"]) == ("cancelled", "on\n", "kept")


@pytest.mark.one_protocol
async def test_a_second_run_in_the_same_session_says_what_it_waits_for(client: Client) -> None:
    begun = await run(client, "x = 1\n" + ENDLESS, wait_seconds=0)
    await printed(client, begun)
    second = await run(client, "x = 2", session_id=begun["session_id"], wait_seconds=0)
    assert second["notes"][0].startswith("it has not begun: it waits for its turn in the session")
    assert (await manage(client, "cancel", second["run_id"]))["status"] == "cancelled"
    await answer(client, "manage_session", action="interrupt", session_id=begun["session_id"])
    assert (await manage(client, "wait", begun["run_id"]))["status"] == "cancelled"
    assert (await run(client, "x", session_id=begun["session_id"]))["result"] == "1"


@pytest.mark.one_protocol
async def test_figures_of_a_run_come_with_its_result(client: Client) -> None:
    begun = await run(client, "open('made.txt', 'w').write('a')", wait_seconds=0)
    result = await call(client, "manage_session", action="wait", run_id=begun["run_id"])
    assert result.structured_content is not None
    assert [artifact["name"] for artifact in result.structured_content["run"]["artifacts"]] == ["made.txt"]
    assert result.content[1].type == "resource_link"


async def test_a_client_that_gives_up_waiting_finds_its_run(apart: Client) -> None:
    with pytest.raises(MCPError, match=r"(?i)timed out"):
        await apart.call_tool("execute_code", {"code": ENDLESS}, read_timeout_seconds=0.5)
    [session] = (await answer(apart, "manage_session", action="list"))["sessions"]
    [run_id] = session["run_ids"]
    assert await printed(apart, {"run_id": run_id, "status": "running", "stdout": ""}) == "on\n"
    assert (await manage(apart, "cancel", run_id))["status"] == "cancelled"
    await answer(apart, "manage_session", action="close", session_id=session["session_id"])


async def test_a_client_that_cancels_its_call_interrupts_the_code(apart: Client) -> None:
    printed = anyio.Event()

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        printed.set()

    session_id = (await run(apart, "x = 7"))["session_id"]
    arguments = {"code": ENDLESS, "session_id": session_id, "timeout_seconds": 300}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: apart.call_tool("execute_code", arguments, progress_callback=progressed))
        await printed.wait()
        tasks.cancel_scope.cancel()
    after = await run(apart, "x", session_id=session_id)
    assert (after["result"], after["session_state"]) == ("7", "kept")
    await answer(apart, "manage_session", action="close", session_id=session_id)


async def test_a_loss_is_told_again_if_the_call_that_told_it_was_given_up(client: Client) -> None:
    deaf = "import signal\nx = signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    killed = await answer(client, "execute_code", code=deaf, timeout_seconds=0.5)
    assert killed["session_state"] == "fresh"
    printed = anyio.Event()

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        printed.set()

    arguments = {"code": ENDLESS, "session_id": killed["session_id"], "timeout_seconds": 300}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: client.call_tool("execute_code", arguments, progress_callback=progressed))
        await printed.wait()
        tasks.cancel_scope.cancel()
    after = await run(client, "x", session_id=killed["session_id"])
    assert "NameError" in after["stderr"]
    assert any(note.startswith("started fresh") for note in after["notes"]), after["notes"]
    assert (await run(client, "1", session_id=killed["session_id"]))["notes"] == []


@pytest.mark.one_protocol
async def test_a_run_that_is_not_known_is_refused(client: Client) -> None:
    assert "is not known" in await refusal(client, "manage_session", action="wait", run_id="0" * 32)
    done = await run(client, "1")
    assert done["run_id"] == ""
    other = await run(client, "while True: pass", wait_seconds=0)
    waiting = await run(client, "1", session_id=other["session_id"], wait_seconds=0)
    await answer(client, "manage_session", action="close", session_id=other["session_id"])
    assert "is not open" in await refusal(client, "manage_session", action="wait", run_id=waiting["run_id"])
    assert (await answer(client, "manage_session", action="list"))["sessions"][0]["run_ids"] == []


@pytest.mark.usefixtures("embedded")
@pytest.mark.parametrize("way", ["2026-07-28", "legacy"])
async def test_a_run_survives_the_connection_of_its_client(server: Server, way: str) -> None:
    async with server.connect(way) as client:
        begun = await run(client, "x = 1\n" + ENDLESS, wait_seconds=0)
    async with server.connect(way) as client:
        assert await printed(client, begun) == "on\n"
        [listed] = (await answer(client, "manage_session", action="list", session_id=begun["session_id"]))["sessions"]
        assert listed["run_ids"] == [begun["run_id"]]
        assert (await manage(client, "cancel", begun["run_id"]))["status"] == "cancelled"
        assert (await run(client, "x", session_id=begun["session_id"]))["result"] == "1"
        await answer(client, "manage_session", action="close", session_id=begun["session_id"])
