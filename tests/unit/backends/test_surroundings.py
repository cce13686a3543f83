"""What a backend says about limits, and what counts of a sandbox mean for one run."""

from pathlib import Path
from typing import Literal

import pytest

from llm_sandbox_mcp.backends.base import Check, Surroundings, Usage
from llm_sandbox_mcp.base.errors import EngineUnavailable

State = Literal["ok", "degraded", "missing"]


@pytest.mark.parametrize(
    ("state", "required", "held"),
    [
        ("ok", False, "ok"),
        ("ok", True, "ok"),
        ("degraded", False, "degraded"),
        ("degraded", True, "missing"),
        ("missing", False, "missing"),
        ("missing", True, "missing"),
    ],
)
def test_a_limit_that_is_not_held_is_missing_where_all_are_required(state: State, required: bool, held: State) -> None:
    surroundings = Surroundings(Path(), {}, (), Path(), require_limits=required)
    row = surroundings.held(Check("limits", state, "memory is not limited", "mount it"))
    assert (row.state, row.fix) == (held, "mount it")
    assert row.detail.startswith("backend.require_limits is set, and ") is (held != state)
    assert row.detail.endswith("memory is not limited")


def test_no_limits_are_required_unless_a_profile_requires_them() -> None:
    row = Check("limits", "degraded", "memory is not limited", "mount it")
    assert Surroundings(Path(), {}, (), Path()).held(row) == row


def test_only_what_is_missing_is_an_error() -> None:
    Check("limits", "ok", "so", "do").must_not_be_missing()
    Check("limits", "degraded", "so", "do").must_not_be_missing()
    with pytest.raises(EngineUnavailable, match="so; do"):
        Check("limits", "missing", "so", "do").must_not_be_missing()


def test_what_a_run_used_is_the_difference_of_two_counts() -> None:
    before, after = Usage(1, 20, 1.5), Usage(3, 25, 4.0)
    assert after.since(before) == Usage(2, 5, 2.5)
    assert after.since(Usage()) == Usage(3, 25, None)
    assert Usage(1).since(before) == Usage(0, -20, None)
