"""Code that reaches a limit, called without MCP."""

from collections.abc import Iterator

import httpx2
import pytest

from llm_sandbox_mcp.base.results import Status

from ...engines import host_folder
from ...mcp.serving import Server, start, stop
from ...reached import LIMITS, PROFILE
from .calling import execute, failure

pytestmark = [pytest.mark.usefixtures("control_groups"), pytest.mark.only_in_all]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with host_folder() as runtime:
        profile = tmp_path_factory.mktemp("small") / "profile.toml"
        profile.write_text(f'[server]\nruntime = "{runtime}"\n[pool]\nmin = 0\n[http]\nexecute_code = true\n{PROFILE}')
        server = start(profile)
        yield server
        assert "Traceback" not in stop(server)


@pytest.mark.parametrize("status", LIMITS)
def test_a_reached_limit_is_the_error_and_its_type(small: Server, status: Status) -> None:
    limit = LIMITS[status]
    answer = execute(small, limit.code, status, timeout_seconds=limit.timeout)
    body = answer.json()
    assert answer.status_code == 400, body
    assert (body["status"], body["error_type"], body["error"]) == (status, status, limit.note), body
    assert body["success"] is False


@pytest.mark.parametrize(
    "timeout",
    [
        "0",
        "-1",
        "-0.0",
        "60.001",
        "1e9",
        "1e400",
        "9" * 400,
        "9" * 5000,
        "NaN",
        "Infinity",
        '"5"',
        '"5s"',
        "true",
        "null",
        "[]",
    ],
    ids=lambda text: text[:9],
)
def test_a_timeout_outside_the_limit_of_the_profile_is_refused(small: Server, timeout: str) -> None:
    body = f'{{"code": "1", "session_id": "times", "timeout_seconds": {timeout}}}'
    headers = {"Content-Type": "application/json"}
    answer = httpx2.post(f"{small.url}/execute_code/", content=body, headers=headers, timeout=30)
    assert answer.status_code in (400, 403, 422), answer.text
    error = failure(answer, answer.status_code)
    assert len(error) < 400
    listed = httpx2.get(f"{small.url}/logs", headers={"X-Session-Id": "times"}).json()
    assert not [entry for entry in listed["entries"] if entry["status"] != "refused"]
