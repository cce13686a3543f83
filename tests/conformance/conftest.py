"""One sandbox on each backend, on the real engine."""

from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.backends import BACKENDS
from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.testing.fixtures import backend, changes, folder, sandbox, service  # noqa: F401
from tests.engines import need, need_open_network, small_profile


@pytest.fixture(params=BACKENDS)
def backend_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def profile(backend_name: str, folder: Path, changes: dict[str, Mapping[str, object]]) -> Profile:
    made = small_profile(backend_name, folder, **changes)
    anyio.run(need, backend_name)
    if backend_name == "embedded" and made.network.mode == "open":
        need_open_network()
    return made


_NO_SIZES = "before Kubernetes 1.22 volumes in memory have no size"
DEVIATIONS = {
    ("kubernetes", "test_what_does_not_fit_is_an_error_that_says_why_and_leaves_nothing"): _NO_SIZES,
    ("kubernetes", "test_a_full_disk_is_still_reported"): _NO_SIZES,
    ("kubernetes", "test_each_limit_that_is_hit_is_counted"): "a node limits processes, but does not count refusals",
}
"""Tests that a backend cannot pass, and why; a test that passes nevertheless fails the run."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        call = getattr(item, "callspec", None)
        name = getattr(item, "originalname", "")
        if call and (reason := DEVIATIONS.get((call.params.get("backend_name", ""), name))):
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
