"""What tests of requests and answers share; none of them opens a sandbox."""

import pytest


@pytest.fixture(params=["2026-07-28", "legacy"])
def era(request: pytest.FixtureRequest) -> str:
    """The protocol version that the client uses."""
    return str(request.param)
