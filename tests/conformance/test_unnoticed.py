"""What ordinary code does not notice: that the server's own tools look at its files after each run, and copy them."""

import pytest

from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute

pytestmark = pytest.mark.anyio

RUNS = 5
"""Runs that leave a file each, so that tools are busy while a process in the background waits."""

JOB = """
mkfifo go ended
cat > job.sh <<'END'
set -m
(read -r line < go; exit 3) &
wait $!
echo "status $?" > ended
END
bash job.sh < /dev/null > job.log 2>&1 &
"""
STOPPED = """
import os, signal, subprocess
process = subprocess.Popen(['sleep', '1000'])
process.send_signal(signal.SIGSTOP)
os.waitid(os.P_PID, process.pid, os.WSTOPPED)
"""
POLLING = """
import ctypes, os, select, threading
libc, answers = ctypes.CDLL(None, use_errno=True), []
poll, (out, into) = select.epoll(), os.pipe()
poll.register(out, select.EPOLLIN)
def wait():
    answers.append(libc.epoll_wait(poll.fileno(), ctypes.create_string_buffer(64), 1, -1))
thread = threading.Thread(target=wait, daemon=True)
thread.start()
"""


async def _leave_files(service: Service, session_id: str) -> None:
    for number in range(RUNS):
        done = await execute(service, f"open('left', 'w').write('{number}')\nNone", session_id=session_id)
        assert [artifact.name for artifact in done.artifacts if artifact.name == "left"] == ["left"], done


async def test_a_shell_that_waits_for_its_job_gets_the_exit_code(service: Service) -> None:
    session = (await execute(service, JOB, language="bash")).session_id
    await _leave_files(service, session)
    # Both wait for the other side of the pipe: the job, and then the shell.
    done = await execute(service, "echo > go; cat ended", language="bash", session_id=session, timeout=20)
    assert done.stdout.text == "status 3\n", done


async def test_a_process_that_code_has_stopped_stays_stopped(service: Service) -> None:
    session = (await execute(service, STOPPED)).session_id
    await _leave_files(service, session)
    state = "open(f'/proc/{process.pid}/stat').read().split()[2]"
    assert (await execute(service, state, session_id=session)).result == "'T'"


async def test_a_system_call_that_waits_is_not_interrupted(service: Service) -> None:
    session = (await execute(service, POLLING)).session_id
    await _leave_files(service, session)
    done = await execute(service, "os.write(into, b'x')\nthread.join()\nanswers", session_id=session)
    assert done.result == "[1]", done
