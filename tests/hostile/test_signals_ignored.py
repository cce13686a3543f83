"""Attack: code that does not react to interrupts. Outcome: it is dead soon after the deadline."""

import pytest

from llm_sandbox_mcp.testing.asking import execute
from tests.hostile.conftest import Arena

pytestmark = pytest.mark.anyio

DEADLINE = 0.5
GRACE = {"grace": 0.25}
LATE = 10.0
"""Seconds. A third of a second is usual; code that is not killed runs forever."""

STUBBORN = {
    "SIGINT ignored": "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
    "every signal ignored": """
import signal
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True: pass
""",
    "a handler that does nothing": "import signal\nsignal.signal(signal.SIGINT, lambda *_: None)\nwhile True: pass",
    "every exception caught": """
import time
while True:
    try:
        while True:
            time.sleep(1)
    except BaseException:
        pass
""",
    "nested finally blocks": """
import time
try:
    time.sleep(100)
finally:
    try:
        time.sleep(100)
    finally:
        try:
            time.sleep(100)
        finally:
            time.sleep(100)
""",
    "signals blocked": """
import signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
while True: time.sleep(1)
""",
    "deep in C": "sum(iter(int, 1))",
    "one long computation": "len(range(10 ** 12).__class__(10 ** 18)), max(range(10 ** 12))",
    "a child that shields its parent": """
import signal, subprocess
signal.signal(signal.SIGINT, signal.SIG_IGN)
subprocess.run(['sh', '-c', 'trap "" INT TERM HUP; while :; do :; done'])
""",
    "stopped": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "many processes while the first process has to wait": """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
for change in (lambda: os.setpriority(os.PRIO_PROCESS, 1, 19), lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0))):
    try:
        change()
    except OSError:
        pass
for _ in range(40):
    if os.fork() == 0:
        os.setsid()
        break
while True: pass
""",
    "replaced by another program": """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.execv('/bin/sleep', ['sleep', '1000'])
""",
}


@pytest.mark.in_turns
@pytest.mark.parametrize("code", STUBBORN.values(), ids=STUBBORN)
async def test_code_that_answers_no_interrupt_is_dead_soon_after_the_deadline(arena: Arena, code: str) -> None:
    result = await arena.attack(code, timeout=DEADLINE, limits=GRACE)
    assert result.status == "timeout", result
    assert result.duration < DEADLINE + LATE
    assert (result.exit_code, result.session_state) == (137, "fresh")
    assert any("did not answer an interrupt and was killed" in note for note in result.notes)
    again = await execute(arena.service, "6 * 7", session_id=result.session_id)
    assert again.result == "42"
    assert any("started fresh" in note for note in again.notes)


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("javascript", "process.on('SIGINT', () => {}); setInterval(() => {}, 1000); await new Promise(() => {})"),
        ("bash", "trap '' INT; while :; do :; done"),
        ("bash", "trap : INT; while :; do sleep 1000; done"),
    ],
)
async def test_other_languages_cannot_outlast_the_deadline_either(arena: Arena, language: str, code: str) -> None:
    result = await arena.attack(code, language=language, timeout=DEADLINE, limits=GRACE)
    assert result.status == "timeout", result
    assert result.duration < DEADLINE + LATE
