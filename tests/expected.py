"""What may fail as expected: a test itself, and neither what it needs nor what must hold after it."""

from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    # For pytest the expectation is also one of fixtures: of a server that does not start, and of one that leaves something.
    report = yield
    if call.when != "call" and hasattr(report, "wasxfail"):
        del report.wasxfail
        report.outcome = "failed"
    return report
