"""A program that ends without closing anything leaves nothing behind, however it ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.compat.llm_sandbox.portal import portal
from tests import leftovers
from tests.signals import usual_signals

pytestmark = pytest.mark.usefixtures("library", "nothing_left")

GONE = 10.0
"""Seconds until the last trace of an ended program must be gone."""


@pytest.fixture
def nothing_left(folder: Path) -> Iterator[None]:
    portal.close()  # this process's own sandboxes would change the count
    look = partial(leftovers.look, folder / "runtime")
    before = look()
    yield
    anyio.run(leftovers.nothing_beyond, before, look, GONE)


OPEN = "from llm_sandbox_mcp import SandboxSession\nsession = SandboxSession()\nsession.open()\n"

# Each program waits only for its own child: the package has child processes too.
ENDS = {
    "forgets to close": OPEN + "print(session.run('print(1)').stdout, end='')",
    "raises": OPEN + "print(session.run('print(1)').stdout, end='', flush=True)\nraise SystemExit(5)",
    "closes in another thread": OPEN
    + "import threading\nprint(session.run('print(1)').stdout, end='')\nt = threading.Thread(target=session.close)\nt.start()",
    "forks": OPEN
    + "import os\nchild = os.fork()\nif child == 0: os._exit(0)\nos.waitpid(child, 0)\nprint(session.run('print(1)').stdout, end='')",
    "has a pool, which its child cannot use": "import os\nfrom llm_sandbox_mcp import PoolClosedError, create_pool_manager\n"
    "pool = create_pool_manager()\nchild = os.fork()\nif child == 0:\n    try: pool.acquire()\n"
    "    except PoolClosedError: os._exit(1)\nprint(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))",
    "uses a session in a child too": OPEN + "import os, sys\nsys.stdout.flush()\nchild = os.fork()\nif child == 0:\n"
    "    with SandboxSession() as own: print(own.run('print(1)').stdout, end='', flush=True)\n    sys.exit()\n"
    "os.waitpid(child, 0)",
}


@pytest.mark.parametrize("program", ENDS.values(), ids=ENDS)
def test_a_program_that_ends_leaves_nothing_behind(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("1\n", ""), done


def test_an_interrupt_ends_a_run_and_the_program_can_go_on() -> None:
    program = OPEN + (
        "try:\n    session.run('print(1, flush=True)\\nwhile True: pass', on_stdout=lambda text: print(text, end='', flush=True))\n"
        "except KeyboardInterrupt:\n    print(session.run('print(2)').stdout, end='')\n    raise"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=usual_signals,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (out, process.returncode) == ("2\n", -signal.SIGINT), err


def test_a_killed_program_leaves_nothing_behind() -> None:
    program = (
        OPEN
        + "session.run('print(1, flush=True)\\nwhile True: pass', on_stdout=lambda text: print(text, end='', flush=True))"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        threads = Path(f"/proc/{process.pid}/task").iterdir()
        children = [child for thread in threads for child in (thread / "children").read_text().split()]
        process.kill()
    for child in children:  # `leftovers` made this process a subreaper, so it adopts them
        os.waitpid(int(child), 0)
