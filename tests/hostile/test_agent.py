"""Attack: killing and deceiving the agent of a container, which runs as the same user as code. Outcome: at most that
sandbox is lost, and the error says so."""

import anyio
import pytest

from llm_sandbox_mcp.base.errors import SandboxLost
from llm_sandbox_mcp.testing.asking import execute
from tests.hostile.conftest import Arena
from tests.hostile.deviations import CONTAINERS

# Not a fixture of the same name: it would get the server of the backend that ran before.
pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend_name", CONTAINERS, indirect=True, scope="package")]

GRACE = {"grace": 0.5}

AGENT = """
import os, signal, time
agent = next(int(p) for p in os.listdir('/proc') if p.isdigit() and b'ends with its server' in open(f'/proc/{p}/cmdline', 'rb').read() and p != '1')
"""

ENDS = {
    "killed": AGENT + "os.kill(agent, signal.SIGKILL)\ntime.sleep(1000)",
    "killed with everything": "import os, signal\nif os.fork() == 0:\n    os.kill(-1, signal.SIGKILL)\nos.wait()\nos.kill(os.getpid(), signal.SIGKILL)",
    "killed after forged output in its name": AGENT
    + "open(f'/proc/{agent}/fd/1', 'w').write('ready\\n' * 5000)\nos.kill(agent, signal.SIGKILL)\ntime.sleep(1000)",
}


@pytest.mark.parametrize("code", ENDS.values(), ids=ENDS)
async def test_a_sandbox_whose_agent_is_killed_is_lost_and_the_next_run_starts_fresh(arena: Arena, code: str) -> None:
    session = await execute(arena.service, "open('kept', 'w').write('x')")
    with pytest.raises(SandboxLost, match="the sandbox ended while the code ran"):
        await arena.attack(code, session_id=session.session_id)
    again = await execute(arena.service, "import os\nprint(os.listdir())", session_id=session.session_id)
    assert (again.status, again.stdout.text) == ("ok", "[]\n"), again
    assert any("started fresh" in note for note in again.notes), again


async def test_an_agent_killed_between_two_runs_is_noticed(arena: Arena) -> None:
    first = await arena.attack(
        AGENT
        + """
if os.fork() == 0:
    os.setsid()
    time.sleep(0.1)
    open(f'/proc/{agent}/fd/1', 'w').write('ready\\n' * 5000)
    os.kill(agent, signal.SIGKILL)
"""
    )
    assert first.status == "ok"
    for _ in range(3):
        try:
            second = await execute(arena.service, "import time\ntime.sleep(0.3)\nprint(1)", session_id=first.session_id)
            break
        except SandboxLost:
            pass
    else:
        pytest.fail("the sandbox stays lost")
    assert second.stdout.text == "1\n"


STOPPED = AGENT + "os.kill(agent, signal.SIGSTOP)\n"
LATE = {
    "never ends": STOPPED + "while True: pass",
    "ends by itself when its time is up": STOPPED + "time.sleep(0.75)",
}


@pytest.mark.parametrize("code", LATE.values(), ids=LATE)
async def test_a_stopped_agent_delays_nobody(arena: Arena, code: str) -> None:
    with anyio.fail_after(10):
        result = await arena.attack(code, timeout=0.5, limits=GRACE)
    assert (result.status, result.session_state) == ("timeout", "fresh"), result
    assert await arena.check("print(6 * 7)", result.session_id) == "42\n"


async def test_signals_that_can_be_ignored_do_not_end_the_agent(arena: Arena) -> None:
    result = await arena.attack(
        AGENT + "for number in range(1, 65):\n    if number not in (9, 19, 32, 33): os.kill(agent, number)\nkept = 1"
    )
    assert result.status == "ok", result
    stopped = await arena.attack("import time\ntime.sleep(1000)", session_id=result.session_id, timeout=0.5)
    assert (stopped.status, stopped.session_state) == ("timeout", "kept"), stopped
    assert await arena.check("print(kept)", result.session_id) == "1\n"


@pytest.mark.parametrize("resource", ["NOFILE", "AS", "DATA", "NPROC", "STACK", "FSIZE", "CPU"])
async def test_the_agent_cannot_be_starved(arena: Arena, resource: str) -> None:
    result = await arena.attack(AGENT + f"import resource\nresource.prlimit(agent, resource.RLIMIT_{resource}, (0, 0))")
    assert (result.status, "PermissionError" in result.stderr.text) == ("error", True), result
    stopped = await arena.attack("while True: pass", session_id=result.session_id, timeout=0.5)
    assert stopped.status == "timeout", stopped


async def test_a_flood_of_forged_output_of_the_agent_is_ignored_and_the_session_closes(arena: Arena) -> None:
    result = await arena.attack(
        AGENT
        + """
for descriptor in (1, 2):
    if os.fork() == 0:
        os.setsid()
        out = os.open(f'/proc/{agent}/fd/{descriptor}', os.O_WRONLY)
        while True:
            os.write(out, b'usage 9 9\\nready\\n' * 1000)
time.sleep(1)
"""
    )
    assert (result.status, result.notes) == ("ok", ()), result


async def test_each_sandbox_has_its_own_copy_of_the_handlers(arena: Arena) -> None:
    result = await arena.attack("""
import os, shutil
for entry in os.scandir('/opt/handlers'):
    shutil.rmtree(entry.path) if entry.is_dir() else os.unlink(entry.path)
os.mkfifo('/opt/handlers/.beat')
try:
    with open('/opt/handlers/fill', 'wb') as fill:
        while True:
            fill.write(bytes(1 << 20))
except OSError:
    pass
os._exit(3)
""")
    assert result.exit_code == 3
    again = await execute(arena.service, "print(1)", session_id=result.session_id)
    assert again.status == "error", again
    await arena.service.sessions.reset(result.session_id)
    assert await arena.check("print(1)", result.session_id) == "1\n"
