"""What the tests of runners share."""

from collections.abc import Iterator

import pytest

from .python_environment import place


@pytest.fixture(scope="session", autouse=True)
def python_environments() -> Iterator[None]:
    with place():
        yield
