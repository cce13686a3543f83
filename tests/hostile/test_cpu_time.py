"""Attack: using processor time in many processes, threads and generations. Outcome: `cpu_limit`, whichever of them used
it."""

import pytest

from tests.hostile.conftest import ANSWER, Arena

pytestmark = pytest.mark.anyio

LIMIT = {"limits": {"cpu_time": 0.5, "timeout": 60.0}}
FAR = 30.0
"""Seconds of wall-clock time; the processor time must be used up long before."""

SPIN = "while True: pass\n"
SPENDERS = {
    "one process": SPIN,
    "a child": f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', '{SPIN.strip()}'])",
    "children that each use little": """
import os
while True:
    child = os.fork()
    if not child:
        for _ in range(100_000): pass
        os._exit(0)
    os.waitpid(child, 0)
""",
    "children that leave their group and are not waited for": """
import os, time
for _ in range(8):
    if not os.fork():
        os.setsid()
        while True: pass
time.sleep(1000)
""",
    "threads": """
import threading
def spin():
    while True: pass
for _ in range(4):
    threading.Thread(target=spin, daemon=True).start()
threading.Event().wait()
""",
    "the kernel": "import os\nwhile True: os.stat('/')",
    "a chain in which each ends as soon as its child runs": """
import os, time
def generation():
    while True:
        for _ in range(2_000_000): pass
        if os.fork(): os._exit(0)
        os.setsid()
if not os.fork(): generation()
time.sleep(1000)
""",
}


@pytest.mark.usefixtures("control_groups")
@pytest.mark.parametrize("limits", [LIMIT], indirect=True)
@pytest.mark.parametrize("code", SPENDERS.values(), ids=SPENDERS)
async def test_processor_time_is_bounded_over_all_processes(arena: Arena, code: str) -> None:
    result = await arena.attack(code, timeout=FAR)
    assert result.status == "cpu_limit", result
    assert result.exit_code in (130, 137)
    assert any("stopped after 500ms of processor time, counted over all processes" in note for note in result.notes)
    assert result.duration < FAR - ANSWER


@pytest.mark.usefixtures("control_groups")
@pytest.mark.parametrize("limits", [LIMIT], indirect=True)
async def test_code_that_ignores_the_interrupt_is_killed_at_the_limit(arena: Arena) -> None:
    result = await arena.attack(f"import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n{SPIN}", timeout=FAR)
    assert (result.status, result.exit_code, result.session_state) == ("cpu_limit", 137, "fresh"), result


@pytest.mark.usefixtures("control_groups")
@pytest.mark.parametrize("limits", [LIMIT], indirect=True)
async def test_each_run_has_its_own_limit_and_keeps_state_if_it_answers_the_interrupt(arena: Arena) -> None:
    session = ""
    for number in range(3):
        result = await arena.attack(
            f"kept = {number}\nimport time\nwhile time.process_time() % 10 < 1000: pass",
            session_id=session,
            timeout=FAR,
        )
        assert (result.status, result.session_state) == ("cpu_limit", "kept"), result
        session = result.session_id
        assert await arena.check("print(kept)", session) == f"{number}\n"


@pytest.mark.parametrize("limits", [LIMIT], indirect=True)
async def test_waiting_uses_no_processor_time(arena: Arena) -> None:
    result = await arena.attack("import time\ntime.sleep(0.8)", timeout=FAR)
    assert result.status == "ok", result


async def test_a_caller_can_lower_the_limit(arena: Arena, control_groups: None) -> None:
    result = await arena.attack(SPIN, timeout=FAR, limits={"cpu_time": 0.3})
    assert result.status == "cpu_limit", result
    assert any("stopped after 300ms of processor time" in note for note in result.notes)


@pytest.mark.parametrize("limits", [LIMIT], indirect=True)
async def test_the_limit_applies_to_a_program_and_its_build(arena: Arena) -> None:
    result = await arena.attack("int main() { for (volatile int i = 0;; i = i + 1); }", language="cpp", timeout=FAR)
    assert result.status == "cpu_limit", result
