"""Attack: taking endless memory, in every way that memory can be allocated. Outcome: `out_of_memory`, and the host
keeps its own."""

import pytest

from tests.engines import MIB
from tests.hostile.conftest import Arena

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("control_groups")]

BOMBS = {
    "of one list": "held = []\nwhile True:\n    held.append(bytearray(1 << 20))",
    "that ignores signals and refusals": """
import signal
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
held = []
while True:
    try:
        held.append(bytearray(1 << 20))
    except MemoryError:
        pass
""",
    "of shared mappings": """
import mmap
held = []
while True:
    held.append(mmap.mmap(-1, 1 << 20))
    held[-1].write(b'x' * (1 << 20))
""",
    "of anonymous files": """
import os
held = []
while True:
    held.append(os.memfd_create('bomb'))
    os.write(held[-1], b'x' * (1 << 20))
""",
    "of System V shared memory": """
import ctypes
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
while True:
    at = libc.shmat(libc.shmget(0, 1 << 20, 0o1600), None, 0)
    ctypes.memset(at, 1, 1 << 20)
""",
    "of processes with a little each": """
import os, time
filled, fill = os.pipe()
while True:
    if os.fork() == 0:
        held = bytearray(os.urandom(4 << 20))
        os.write(fill, b'.')
        time.sleep(1000)
    os.read(filled, 1)  # or the limit on processes would come first
""",
    "inside the standard library": "import itertools\nlist(itertools.repeat('x' * 8))",
}


@pytest.mark.in_turns
@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
async def test_a_memory_bomb_is_out_of_memory(arena: Arena, bomb: str) -> None:
    result = await arena.attack(bomb, timeout=3)
    assert result.status == "out_of_memory", result
    assert any("the memory limit of 128MiB was reached" in note for note in result.notes), result
    # If the kernel killed a process other than the runner, the state is still there.
    assert result.session_state == ("kept" if "fork" in bomb and result.exit_code in (1, 130) else "fresh")
    assert await arena.check("print(6 * 7)", result.session_id) == "42\n"


async def test_a_memory_bomb_in_a_child_ends_only_the_child(arena: Arena) -> None:
    result = await arena.attack("""
import subprocess, sys
kept = 1
subprocess.run([sys.executable, '-c', 'held = []\\nwhile True: held.append(bytearray(1 << 20))']).returncode
""")
    assert (result.status, result.result) == ("ok", "-9")
    assert any("killed at the memory limit of 128MiB" in note for note in result.notes), result
    assert await arena.check("print(kept)", result.session_id) == "1\n"


@pytest.mark.parametrize("limits", [{"limits": {"disk": 256 * MIB}}], indirect=True)
@pytest.mark.parametrize("folder", ["/tmp", "/home", "/sandbox"])
async def test_files_that_exceed_the_memory_are_out_of_memory(arena: Arena, folder: str) -> None:
    result = await arena.attack(f"""
with open('{folder}/bomb', 'wb') as file:
    while True:
        file.write(b'x' * (1 << 20))
""")
    assert result.status == "out_of_memory", result
    assert result.session_state == "fresh"


async def test_the_cause_of_one_runs_end_is_not_reported_for_the_next(arena: Arena) -> None:
    first = await arena.attack(
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'held = []\\nwhile True: held.append(bytearray(1 << 20))'])"
    )
    second = await arena.attack("raise SystemExit(3)", session_id=first.session_id)
    assert (second.status, second.exit_code) == ("error", 3)
    third = await arena.attack("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", session_id=first.session_id)
    assert (third.status, third.exit_code) == ("error", 137)
    assert not any("memory" in note for note in third.notes)


async def test_an_interrupted_run_after_one_that_ran_out_of_memory_is_cancelled(arena: Arena) -> None:
    first = await arena.attack(
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'held = []\\nwhile True: held.append(bytearray(1 << 20))'])"
    )
    started: list[str] = []

    async def close(stream: str, text: str) -> None:
        if not started:
            started.append(text)
            await arena.service.sessions.close(first.session_id)

    second = await arena.attack(
        "import time\nprint('started')\ntime.sleep(100)", session_id=first.session_id, on_output=close
    )
    assert (second.status, second.session_state) == ("cancelled", "ended")
