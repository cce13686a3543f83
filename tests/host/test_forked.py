"""A forked copy of the launcher never returns to the frames in which it was forked."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from llm_sandbox_mcp.backends.embedded.forked import to_the_end

pid = os.fork()
if pid == 0:
    try:
        with to_the_end({arguments}):
            {body}
    finally:
        print("came back")
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.parametrize(
    ("arguments", "body", "status", "message"),
    [
        ("'cannot start'", "pass", "0", ""),
        ("'cannot start'", "raise OSError('no room')", "1", "cannot start: no room"),
        ("", "raise OSError('no room')", "1", "no room"),
        ("quiet=True", "raise OSError('no room')", "1", ""),
        ("'cannot start'", "sys.exit('enough')", "1", "cannot start: enough"),
        ("quiet=True", "raise KeyboardInterrupt", "1", ""),
    ],
)
def test_a_forked_process_ends_at_the_end_of_its_block(arguments: str, body: str, status: str, message: str) -> None:
    program = PROGRAM.format(arguments=arguments, body=body)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == (f"{status}\n", message)
