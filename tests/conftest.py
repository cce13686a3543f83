"""What all tests share."""

import pytest

from .engines import require


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def embedded() -> None:
    """For tests that run code on bubblewrap."""
    require("embedded")
