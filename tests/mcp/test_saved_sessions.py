"""Saved sessions, as a model uses them, over both protocols on real sandboxes."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from mcp import Client

from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.server import build_server
from llm_sandbox_mcp.wiring import open_service

from ..engines import need
from .results import answer, call, refusal, text

pytestmark = pytest.mark.anyio

MANAGE = "manage_session"


@pytest.fixture
async def client(era: str, anyio_backend: str, tmp_path: Path) -> AsyncIterator[Client]:
    await need("embedded")
    profile = load_profile(over={"sessions": {"store": str(tmp_path / "saved")}, "pool": {"min": 0}})
    with anyio.fail_after(60):
        async with open_service(profile) as service, Client(build_server(service, host_files=True), mode=era) as opened:
            yield opened


async def test_a_session_is_saved_opened_branched_listed_and_deleted(client: Client) -> None:
    first = await answer(client, "execute_code", code="echo content > kept", language="bash")
    session_id = first["session_id"]
    saved = await answer(client, MANAGE, action="save", session_id=session_id, name="geo")
    assert (saved["session_id"], saved["saved"][0]["name"]) == (session_id, "geo")
    await answer(client, MANAGE, action="close", session_id=session_id)

    opened = await answer(client, MANAGE, action="open", name="geo")
    assert opened["session_id"] not in ("", session_id)
    assert opened["restored"]["files"] == saved["saved"][0]["files"] > 1
    assert [one["session_id"] for one in opened["sessions"]] == [opened["session_id"]]
    again = {"language": "bash", "session_id": opened["session_id"]}
    assert (await answer(client, "execute_code", code="cat kept; echo more >> kept", **again))["stdout"] == "content\n"

    branch = await call(client, MANAGE, action="branch", session_id=opened["session_id"])
    assert branch.structured_content is not None
    second = branch.structured_content["session_id"]
    assert text(branch).endswith(f"\nsession_id: {second}")
    out = await answer(client, "execute_code", code="cat kept", language="bash", session_id=second)
    assert out["stdout"] == "content\nmore\n"

    listed = await call(client, MANAGE, action="saved")
    assert text(listed).startswith("geo: ")
    assert listed.structured_content is not None
    [found] = listed.structured_content["saved"]
    assert (found["name"], found["files"], found["problem"]) == ("geo", saved["saved"][0]["files"], "")
    assert {second, opened["session_id"]} == {
        one["session_id"] for one in (await answer(client, MANAGE, action="list"))["sessions"]
    }
    assert text(await call(client, MANAGE, action="delete", name="geo")) == "deleted: geo"
    assert text(await call(client, MANAGE, action="saved")) == "no saved sessions"


async def test_mistakes_are_answered_with_a_next_step(client: Client) -> None:
    session_id = (await answer(client, "execute_code", code="1"))["session_id"]
    for arguments, expected in (
        ({"action": "save", "session_id": session_id}, "save needs a name; choose one"),
        ({"action": "save", "name": "geo"}, "save needs a session_id"),
        ({"action": "branch"}, "branch needs a session_id"),
        ({"action": "open"}, "open needs a name; action saved lists those that exist"),
        (
            {"action": "open", "name": "geo"},
            "no session is saved as 'geo'; manage_session(action=\"saved\") lists those",
        ),
        ({"action": "delete", "name": "geo"}, "no session is saved as 'geo'"),
        (
            {"action": "save", "session_id": session_id, "name": "../x"},
            "cannot be the name of a saved session; use 1 to",
        ),
        ({"action": "save", "session_id": session_id, "name": "x" * 10_000}, "cannot be the name"),
        ({"action": "save", "session_id": "x", "name": "geo"}, "session 'x' is not open: it never existed"),
    ):
        assert expected in await refusal(client, MANAGE, **arguments)


async def test_a_save_waits_for_a_run_as_long_as_its_caller_wants(client: Client) -> None:
    session_id = (await answer(client, "execute_code", code="x = 1"))["session_id"]
    arguments = {"code": "import time; time.sleep(60)", "wait_seconds": 0.1, "session_id": session_id}
    run = await answer(client, "execute_code", **arguments)
    about = {"session_id": run["session_id"], "name": "geo", "wait_seconds": 0.2}
    for action in ("save", "branch"):
        expected = "it was not done within 200ms, as when a run goes on in the session; wait for the run, or cancel it"
        assert expected in await refusal(client, MANAGE, action=action, **about)
    await answer(client, MANAGE, action="cancel", run_id=run["run_id"])
    assert (await answer(client, MANAGE, action="save", **about | {"wait_seconds": 30}))["saved"][0]["name"] == "geo"


async def test_what_is_missing_is_said_in_words_and_in_the_structure(client: Client) -> None:
    code = "import socket\nopened = socket.socket(socket.AF_UNIX)\nopened.bind('here')"
    session_id = (await answer(client, "execute_code", code=code))["session_id"]
    saved = await call(client, MANAGE, action="save", session_id=session_id, name="geo")
    opened = await call(client, MANAGE, action="open", name="geo")
    for result in (saved, opened):
        assert "\nmissing: files: /sandbox/here: it is a socket" in text(result)
        assert result.structured_content is not None
        assert "files: /sandbox/here: it is a socket" in result.structured_content["missing"]
