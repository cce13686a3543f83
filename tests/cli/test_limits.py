"""`run` with code that reaches a limit."""

from pathlib import Path

import pytest

from llm_sandbox_mcp.base.results import Status

from ..reached import LIMITS, PROFILE
from .command import command

pytestmark = [pytest.mark.usefixtures("control_groups"), pytest.mark.only_in_all]

EXITS: dict[Status, int] = {"cpu_limit": 124, "output_limit": 130}
"""For other limits the code fails, with Python's status for an error. `test_run.py` tests time and memory."""


@pytest.mark.parametrize("status", [status for status in LIMITS if status not in ("timeout", "out_of_memory")])
def test_a_reached_limit_gives_a_status_and_a_line_on_stderr(tmp_path: Path, status: Status) -> None:
    limit = LIMITS[status]
    profile = tmp_path / "small.toml"
    profile.write_text(PROFILE)
    done = command("run", "--profile", str(profile), "--timeout", str(limit.timeout), "-c", limit.code)
    assert done.returncode == EXITS.get(status, 1), done.stderr[-2000:]
    assert f"note: {limit.note}" in done.stderr.splitlines()
