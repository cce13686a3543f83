"""Attack: a process that detaches itself from its run. Outcome: it is gone with its sandbox."""

import pytest

from tests.hostile.conftest import ANSWER, PROCESSES, Arena

pytestmark = pytest.mark.anyio

DAEMON = """
import os, signal, time
def daemon(work):
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir('/')
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    while True:
        work()
"""


async def test_a_daemon_does_not_hold_up_the_run_that_started_it(arena: Arena) -> None:
    result = await arena.attack(DAEMON + "daemon(lambda: time.sleep(1))\nprint('started')")
    assert (result.status, result.stdout.text) == ("ok", "started\n")
    assert result.duration < ANSWER


@pytest.mark.in_turns
async def test_a_daemon_is_gone_with_a_session_that_is_not_kept(arena: Arena) -> None:
    # The arena checks that nothing is left.
    result = await arena.attack(DAEMON + "daemon(lambda: None)\nprint('started')", keep_session=False)
    assert (result.status, result.session_state) == ("ok", "ended")


async def test_a_process_that_was_never_a_child_of_the_code_is_gone_too(arena: Arena) -> None:
    # Its parent is the runner's parent from the start: 0x8000 is CLONE_PARENT.
    result = await arena.attack(
        DAEMON
        + """
import ctypes, platform
number = 56 if platform.machine() == 'x86_64' else 220
if ctypes.CDLL(None).syscall(number, 0x8000 | signal.SIGCHLD, 0, 0, 0, 0) == 0:
    os.setsid()
    while True: pass
print('started')
""",
        keep_session=False,
    )
    assert (result.status, result.stdout.text) == ("ok", "started\n"), result


async def test_a_daemon_that_holds_the_streams_open_does_not_hide_the_runners_end(arena: Arena) -> None:
    result = await arena.attack(DAEMON + "daemon(lambda: time.sleep(1))\nprint('last words', flush=True)\nos._exit(7)")
    assert (result.status, result.exit_code) == ("error", 7)
    assert result.stdout.text == "last words\n"
    assert result.duration < ANSWER
    assert any("ended with exit code 7" in note for note in result.notes)


async def test_a_daemon_is_gone_when_its_run_is_killed(arena: Arena, backend_name: str) -> None:
    result = await arena.attack(
        DAEMON + "daemon(lambda: time.sleep(1))\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
        timeout=0.5,
    )
    assert (result.status, result.session_state) == ("timeout", "fresh")
    output = await arena.check(
        "import os\nprint(len([name for name in os.listdir('/proc') if name.isdigit() and int(name) not in (1, os.getpid())]))",
        result.session_id,
    )
    assert int(output) == PROCESSES[backend_name] - 2


async def test_later_output_of_a_daemon_stays_in_its_session(arena: Arena) -> None:
    first = await arena.attack(DAEMON + "daemon(lambda: (os.write(1, b'late'), time.sleep(0.02)))")
    second = await arena.attack("import time\ntime.sleep(0.2)", session_id=first.session_id)
    assert second.status == "ok"
    assert "late" in second.stdout.text


async def test_two_hundred_orphans_are_reaped_and_no_longer_counted(arena: Arena) -> None:
    code = """
import os
for _ in range(200):
    if os.fork() == 0:
        if os.fork() == 0:
            os._exit(0)
        os._exit(0)
    os.wait()
"""
    result = await arena.attack(code)
    assert result.status == "ok", result
