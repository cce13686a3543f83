"""Calls a server as a program does that has only an HTTP library."""

from typing import Any

import httpx2

from ...mcp.serving import Server

HTTP = httpx2.Client(limits=httpx2.Limits(max_keepalive_connections=0))
"""Each request has a connection of its own; making a client for each would read all certificates of this machine."""


def execute(server: Server, code: str, session: str = "", timeout: float = 30, **body: Any) -> httpx2.Response:
    """Runs code, in the shared session or in a named session."""
    if session:
        body["session_id"] = session
    return HTTP.post(f"{server.url}/execute_code/", json={"code": code, **body}, timeout=timeout)


def result(server: Server, code: str, session: str, **body: Any) -> dict[str, Any]:
    """Runs code that must succeed and returns its values."""
    answer = execute(server, code, session, **body)
    assert answer.status_code == 200, answer.text
    values: dict[str, Any] = answer.json()["result"]
    return values


def failure(answer: httpx2.Response, status: int) -> str:
    """Checks that a request was refused with this status, and returns the one line of the error."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"error", "error_type", "traceback", "success"}
    assert body["success"] is False
    assert "\n" not in body["error"]
    assert "; " in body["error"]
    return str(body["error"])


def new(session: str) -> str:
    """The note in the first result of a session."""
    return f"session {session} is new: nothing is left of an earlier one of this name"
