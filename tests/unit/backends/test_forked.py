"""Nothing that a copy of the launcher does comes back to the frames in which it was forked."""

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
    ("arguments", "body", "status", "said"),
    [
        ("'cannot start'", "pass", "0", ""),
        ("'cannot start'", "raise OSError('no room')", "1", "cannot start: no room"),
        ("", "raise OSError('no room')", "1", "no room"),
        ("quiet=True", "raise OSError('no room')", "1", ""),
        ("'cannot start'", "sys.exit('enough')", "1", "cannot start: enough"),
        ("quiet=True", "raise KeyboardInterrupt", "1", ""),
    ],
)
def test_a_forked_process_ends_where_its_block_does(arguments: str, body: str, status: str, said: str) -> None:
    program = PROGRAM.format(arguments=arguments, body=body)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == (f"{status}\n", said)
