"""What all tests share."""

import anyio
import pytest

from .engines import need


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def embedded() -> None:
    """For tests that run code on bubblewrap."""
    anyio.run(need, "embedded")
