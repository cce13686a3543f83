"""The error when it is not possible to listen on a port of a sandbox."""

import errno

import pytest

from llm_sandbox_mcp.backends.listening import port_refused


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        (errno.EADDRINUSE, "Address already in use; stop the program that listens there, or open a new session"),
        (errno.EMFILE, "Too many open files; open a new session"),
    ],
)
def test_the_next_step_fits_the_cause(reason: int, message: str) -> None:
    assert str(port_refused(3128, reason)) == f"the sandbox cannot listen on port 3128: {message}"
