"""Attack: starting endless processes. Outcome: the limit on processes stops them, and the result names it."""

import pytest

from llm_sandbox_mcp.testing.asking import execute
from tests.hostile.conftest import Arena

pytestmark = pytest.mark.anyio

OUT_OF_REACH = "one whose members leave their group and session"
BOMBS = {
    "the classic": "import os\nwhile True:\n    os.fork()",
    "one that ignores refusals": """
import os, signal
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True:
    try:
        os.fork()
    except BlockingIOError:
        pass
""",
    OUT_OF_REACH: """
import os
while True:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        pass
""",
    "of shells": "import subprocess\nsubprocess.run(['bash', '-c', 'f() { f | f & f; }; f; wait'])",
    "by vfork": """
import ctypes, os
libc = ctypes.CDLL(None)
while True:
    os.posix_spawn('/bin/sleep', ['sleep', '1000'], {})
""",
    "that outlives its run": """
import os
if os.fork() == 0:
    os.setsid()
    while True:
        try:
            os.fork()
        except OSError:
            pass
while True:
    try:
        os.close(os.open('/proc/self/stat', os.O_RDONLY))
        if len([name for name in os.listdir('/proc') if name.isdigit()]) > 60:
            break
    except OSError:
        pass
""",
}


@pytest.mark.in_turns
@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
async def test_a_fork_bomb_meets_the_limit_on_processes(arena: Arena, bomb: str) -> None:
    result = await arena.attack(bomb, timeout=1)
    arena.check_process_note(result)


async def test_the_session_of_a_fork_bomb_works_again(arena: Arena) -> None:
    # Without the first line the interrupt could be answered in time, and the bomb would keep running next to its
    # session.
    bomb = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" + BOMBS[OUT_OF_REACH]
    result = await arena.attack(bomb, timeout=1)
    assert result.status == "timeout"
    assert result.session_state == "fresh"
    assert await arena.check("print(6 * 7)", result.session_id) == "42\n"


async def test_processes_that_fill_the_limit_and_stay_do_not_hang_the_session(arena: Arena) -> None:
    result = await arena.attack("""
import subprocess
started = []
try:
    while True:
        started.append(subprocess.Popen(['sleep', '1000'], start_new_session=True))
except OSError:
    pass
open('left.txt', 'w').write('x')
""")
    arena.check_process_note(result)
    assert any("not kept" in note for note in result.notes), result
    await arena.check("for process in started: process.kill(), process.wait()", result.session_id)
    again = await execute(arena.service, "open('left.txt', 'w').write('y')", session_id=result.session_id)
    assert [artifact.name for artifact in again.artifacts] == ["left.txt"]
