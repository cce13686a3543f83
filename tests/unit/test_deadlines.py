"""The bound of tests, on what can be cancelled and on what comes of a thread, which cannot."""

import anyio
import pytest

from tests.deadlines import within

pytestmark = pytest.mark.anyio


async def test_what_is_cancelled_is_late() -> None:
    with pytest.raises(TimeoutError), within(0.01):
        await anyio.sleep_forever()


async def test_an_error_that_comes_late_is_late() -> None:
    with pytest.raises(TimeoutError), within(0):
        raise ValueError


async def test_an_error_that_was_expected_and_comes_late_is_late() -> None:
    with pytest.raises(TimeoutError), within(0), pytest.raises(ZeroDivisionError):
        _ = 1 / 0


async def test_what_is_in_time_is_as_it_would_be() -> None:
    with within(60):
        await anyio.lowlevel.checkpoint()
    with pytest.raises(ZeroDivisionError), within(60):
        _ = 1 / 0
