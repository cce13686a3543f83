"""Fixtures that the tests of languages share."""

from collections.abc import Iterator

import pytest

from llm_sandbox_mcp.backends import BACKENDS
from llm_sandbox_mcp.testing.fixtures import folder  # noqa: F401

from .python_environment import place


@pytest.fixture(scope="module", params=BACKENDS)
def backend_name(request: pytest.FixtureRequest) -> str:
    """Each engine, for behaviour that languages must have on all engines; a test calls `need` to require the engine."""
    name: str = request.param
    return name


@pytest.fixture(scope="session", autouse=True)
def python_environments() -> Iterator[None]:
    with place():
        yield
