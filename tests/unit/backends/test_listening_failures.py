"""What is said where a sandbox's port cannot be had."""

import errno

import pytest

from llm_sandbox_mcp.backends.listening import port_refused


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (errno.EADDRINUSE, "Address already in use; stop the program that listens there, or use a new session"),
        (errno.EMFILE, "Too many open files; use a new session"),
    ],
)
def test_the_step_is_one_for_the_cause(reason: int, said: str) -> None:
    assert str(port_refused(3128, reason)) == f"the sandbox cannot listen on port 3128: {said}"
