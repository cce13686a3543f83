"""Code that reaches a limit, for callers without MCP."""

from collections.abc import Iterator

import pytest

from llm_sandbox_mcp.results import Status

from ..engines import host_folder
from ..mcp.serving import Server, start, stop
from ..reached import LIMITS, PROFILE
from .calling import execute

pytestmark = pytest.mark.usefixtures("control_groups")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with host_folder() as runtime:
        profile = tmp_path_factory.mktemp("small") / "profile.toml"
        profile.write_text(
            f'[embedded]\nruntime = "{runtime}"\n[pool]\nmin = 0\n[http]\nexecute_code = true\n{PROFILE}'
        )
        server = start(profile)
        yield server
        said = stop(server)
        assert "Traceback" not in said


@pytest.mark.parametrize("status", LIMITS)
def test_a_limit_is_the_error_and_the_type_of_it(small: Server, status: Status) -> None:
    limit = LIMITS[status]
    answer = execute(small, limit.code, status, timeout_seconds=limit.timeout)
    said = answer.json()
    assert answer.status_code == 400, said
    assert (said["status"], said["error_type"], said["error"]) == (status, status, limit.note), said
    assert said["success"] is False
