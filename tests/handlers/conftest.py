"""What the tests of languages share."""

from collections.abc import Iterator

import pytest

from llm_sandbox_mcp.backends import BACKENDS

from .python_environment import place


@pytest.fixture(scope="module", params=BACKENDS)
def backend_name(request: pytest.FixtureRequest) -> str:
    """Each engine, for what every language has to do on all of them; a test says by `need` that it wants it here."""
    name: str = request.param
    return name


@pytest.fixture(scope="session", autouse=True)
def python_environments() -> Iterator[None]:
    with place():
        yield
