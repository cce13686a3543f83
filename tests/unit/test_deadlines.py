"""The time limit of tests: for code that can be cancelled, and for results of threads, which cannot be cancelled."""

import anyio
import pytest

from tests.deadlines import within

pytestmark = pytest.mark.anyio


async def test_code_that_is_cancelled_is_late() -> None:
    with pytest.raises(TimeoutError), within(0.01):
        await anyio.sleep_forever()


async def test_an_error_that_comes_late_is_late() -> None:
    with pytest.raises(TimeoutError), within(0):
        raise ValueError


async def test_an_expected_error_that_comes_late_is_late() -> None:
    with pytest.raises(TimeoutError), within(0), pytest.raises(ZeroDivisionError):
        _ = 1 / 0


async def test_code_that_is_in_time_runs_as_without_the_limit() -> None:
    with within(60):
        await anyio.lowlevel.checkpoint()
    with pytest.raises(ZeroDivisionError), within(60):
        _ = 1 / 0
