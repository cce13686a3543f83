"""Installations that take longer than a call: they go on, and are found, waited for, read and cancelled as runs are."""

import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp import Client

from llm_sandbox_mcp.base.errors import InstallFailed
from llm_sandbox_mcp.base.principal import USER
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.server import build_server
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute, install, open_session
from llm_sandbox_mcp.wiring import open_service
from tests.handlers.indexes import pages
from tests.local_index import LocalIndex, local_index

from .results import answer, call, text
from .test_task_extension import Polling

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("embedded")]

LIBRARY = "tinyanswer"
USE = "import tinyanswer\ntinyanswer.__name__"


@pytest.fixture
def gate(index: LocalIndex) -> Iterator[threading.Event]:
    """Until it is set, the index answers nothing."""
    opened = index.pages[f"/{LIBRARY}/"].gate = threading.Event()
    yield opened
    opened.set()


@pytest.fixture
def index() -> Iterator[LocalIndex]:
    with local_index() as served:
        served.pages.update(pages("python"))
        yield served


@pytest.fixture
async def service(index: LocalIndex) -> AsyncIterator[Service]:
    profile = load_profile(over={"languages": {"python": {"index": f"{index.url}/"}}})
    with anyio.fail_after(60):
        async with open_service(profile) as opened:
            yield opened


@pytest.fixture
async def client(service: Service, gate: threading.Event, era: str) -> AsyncIterator[Client]:
    async with Client(build_server(service, host_files=True), mode=era) as connected:
        yield connected


async def asked(index: LocalIndex) -> None:
    """Waits until a package manager has asked the index, which does not answer."""
    assert await anyio.to_thread.run_sync(index.asked.wait, 50)


async def manage(client: Client, action: str, run_id: str, **arguments: Any) -> dict[str, Any]:
    found: dict[str, Any] = (await answer(client, "manage_session", action=action, run_id=run_id, **arguments))["run"]
    return found


async def test_an_installation_that_takes_longer_than_the_call_is_found_again(
    client: Client, index: LocalIndex, gate: threading.Event
) -> None:
    result = await call(client, "install_libraries", libraries=[LIBRARY], wait_seconds=0)
    begun = result.structured_content
    assert begun is not None and begun["status"] == "running", begun
    assert text(result).startswith(f"status: running\nrun: {begun['run_id']}\nsession: {begun['session_id']}\nnote: ")
    await asked(index)
    listed = await call(client, "manage_session", action="list")
    assert f"installation {begun['run_id']}: installing" in text(listed)
    read = await manage(client, "read", begun["run_id"])
    assert (begun["output"] + read["output"]).startswith(f"installing {LIBRARY} with uv\n")
    assert read["notes"][0].startswith("its libraries are being installed, and nothing else can run in its session")
    gate.set()
    ended = await call(client, "manage_session", action="wait", run_id=begun["run_id"])
    assert f"installed: {LIBRARY} " in text(ended)
    assert ended.structured_content is not None
    found = ended.structured_content["run"]
    assert (found["status"], [library["name"] for library in found["libraries"]]) == ("ok", [LIBRARY])
    done = await answer(client, "execute_code", code=USE, session_id=begun["session_id"])
    assert done["result"] == f"'{LIBRARY}'"


async def test_libraries_of_code_are_installed_without_the_call(
    client: Client, index: LocalIndex, gate: threading.Event
) -> None:
    begun = await answer(client, "execute_code", code=USE, libraries=[LIBRARY], wait_seconds=0)
    assert begun["status"] == "running"
    await asked(index)
    read = await manage(client, "read", begun["run_id"])
    assert (begun["stderr"] + read["stderr"]).startswith(f"installing {LIBRARY} with uv\n")
    gate.set()
    ended = await manage(client, "wait", begun["run_id"])
    assert (ended["status"], ended["result"], ended["stderr"]) == ("ok", f"'{LIBRARY}'", "")


async def test_a_cancelled_installation_says_so_and_its_session_goes_on(
    client: Client, index: LocalIndex, gate: threading.Event
) -> None:
    session_id = (await answer(client, "execute_code", code="x = 7"))["session_id"]
    begun = await answer(client, "install_libraries", libraries=[LIBRARY], session_id=session_id, wait_seconds=0)
    waiting = await answer(client, "execute_code", code="x", session_id=session_id, wait_seconds=0)
    assert waiting["notes"][0].startswith("it has not begun: it waits for its turn in the session")
    await asked(index)
    cancelled = await call(client, "manage_session", action="cancel", run_id=begun["run_id"])
    assert text(cancelled).startswith(f"status: cancelled\nsession: {session_id}\nnote: it was cancelled")
    ended = await manage(client, "wait", waiting["run_id"])
    assert (ended["status"], ended["result"], ended["session_state"]) == ("ok", "7", "kept")
    gate.set()
    again = await answer(client, "install_libraries", libraries=[LIBRARY], session_id=session_id)
    assert [library["name"] for library in again["libraries"]] == [LIBRARY]


async def test_an_installation_is_a_task_for_clients_that_know_tasks(
    service: Service, index: LocalIndex, gate: threading.Event
) -> None:
    polling = Polling()

    async def open_the_gate() -> None:
        await asked(index)
        await anyio.wait_all_tasks_blocked()
        gate.set()

    async with (
        Client(build_server(service, host_files=True), mode="2026-07-28", extensions=[polling]) as client,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(open_the_gate)
        done = await call(client, "install_libraries", libraries=[LIBRARY])
    assert f"installed: {LIBRARY} " in text(done)
    assert len(polling.tasks) == 1


@pytest.mark.parametrize("how", ["installation", "libraries of code"])
async def test_work_of_a_program_is_listed_and_can_be_cancelled_by_its_id(
    service: Service, index: LocalIndex, gate: threading.Event, how: str
) -> None:
    session_id = open_session(service)

    async def cancel() -> None:
        await asked(index)
        [work] = service.door.of_session(session_id)
        assert (work.state, work.ask.caller, service.door.get(work.id)) == ("installing", USER, work)
        work.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancel)
        if how == "installation":
            with pytest.raises(InstallFailed, match="the installation was cancelled; install again"):
                await install(service, [LIBRARY], session_id=session_id)
        else:
            done = await execute(service, USE, libraries=[LIBRARY], session_id=session_id)
            assert (done.status, done.notes) == ("cancelled", ("it was cancelled before its code had begun",))
    assert service.door.of_session(session_id) == ()
    assert (await execute(service, "6 * 7", session_id=session_id)).result == "42"


@pytest.mark.parametrize("action", ["interrupt", "reset", "close"])
async def test_what_stops_a_session_stops_its_installation(
    client: Client, index: LocalIndex, gate: threading.Event, action: str
) -> None:
    begun = await answer(client, "install_libraries", libraries=[LIBRARY], wait_seconds=0)
    await asked(index)
    done = await call(client, "manage_session", action=action, session_id=begun["session_id"])
    assert text(done).endswith(f": {begun['session_id']}") and "nothing" not in text(done)
    assert (await manage(client, "wait", begun["run_id"]))["status"] == "cancelled"
    if action != "close":
        listed = await call(client, "manage_session", action="list")
        assert f"installation {begun['run_id']}: ended (cancelled), " in text(listed)
        nothing = await call(client, "manage_session", action="interrupt", session_id=begun["session_id"])
        assert text(nothing) == f"nothing to interrupt, as nothing runs: {begun['session_id']}"
