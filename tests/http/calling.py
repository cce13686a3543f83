"""Calls a server as a program with nothing but a library for HTTP does."""

from typing import Any

import httpx2

from ..mcp.serving import Server


def execute(server: Server, code: str, session: str = "", timeout: float = 30, **body: Any) -> httpx2.Response:
    """Runs code, in the session that all share or in another."""
    if session:
        body["session_id"] = session
    return httpx2.post(f"{server.url}/execute_code/", json={"code": code, **body}, timeout=timeout)


def result(server: Server, code: str, session: str, **body: Any) -> dict[str, Any]:
    """The values after code that must succeed."""
    answer = execute(server, code, session, **body)
    assert answer.status_code == 200, answer.text
    values: dict[str, Any] = answer.json()["result"]
    return values


def failure(answer: httpx2.Response, status: int) -> str:
    """The one line by which a request was refused."""
    assert answer.status_code == status, answer.text
    said = answer.json()
    assert set(said) == {"error", "error_type", "traceback", "success"}
    assert said["success"] is False
    assert "\n" not in said["error"]
    assert "; " in said["error"]
    return str(said["error"])
