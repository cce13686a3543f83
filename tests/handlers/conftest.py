"""What the tests of runners share."""

from collections.abc import Iterator

import pytest

from .python_environment import remove


@pytest.fixture(scope="session", autouse=True)
def no_environment_left() -> Iterator[None]:
    yield
    remove()
