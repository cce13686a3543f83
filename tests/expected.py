"""Limits xfail to the test itself: a failure in its fixtures, before or after it, is never an expected one."""

from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    # pytest would also accept a failing fixture: a server that does not start, or one that leaves something behind.
    report = yield
    if call.when != "call" and hasattr(report, "wasxfail"):
        del report.wasxfail
        report.outcome = "failed"
    return report
