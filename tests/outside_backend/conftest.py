"""The fixtures that the package ships, used as the author of a backend uses them."""

from collections.abc import Iterator

import pytest

from llm_sandbox_mcp.testing.fixtures import *
from llm_sandbox_mcp.testing.profiles import host_folder

from .installed import install

_NAMES = "its folders have other paths on the host"
_LIMITS = "it limits nothing"
NOT_KEPT = {
    "test_a_process_starts_in_the_given_folder": _NAMES,
    "test_a_path_that_cannot_be_packed_is_an_error_with_the_reason": _NAMES,
    "test_each_limit_that_is_hit_is_counted": _LIMITS,
    "test_what_does_not_fit_is_an_error_that_says_why_and_leaves_nothing": _LIMITS,
    "test_a_caller_lowers_limits_of_a_new_session_and_of_one_run": _LIMITS,
}
"""The tests that fail when a sandbox is only a folder, and why."""


@pytest.fixture(scope="session", autouse=True)
def installed() -> Iterator[None]:
    with host_folder() as folder, pytest.MonkeyPatch.context() as patch:
        install(folder)
        patch.syspath_prepend(str(folder))
        yield


@pytest.fixture  # type: ignore[no-redef]  # as authors write it
def backend_name() -> str:
    return "plain"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = getattr(item, "originalname", "")
        if item.path.parent.name == "outside_backend" and (reason := NOT_KEPT.get(name)):
            # A test that tries to reach a limit would use up the machine itself.
            limits = reason is _LIMITS
            item.add_marker(pytest.mark.skip(reason) if limits else pytest.mark.xfail(reason=reason, strict=True))
