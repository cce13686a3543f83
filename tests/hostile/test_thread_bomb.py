"""Attack: starting endless threads. Outcome: the limit on processes and threads stops them, and the result names it."""

import pytest

from tests.hostile.conftest import Arena

pytestmark = pytest.mark.anyio

BOMBS = {
    "sleepers": """
import threading
for _ in range(100_000):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
""",
    "spinners that ignore refusals": """
import _thread
def spin():
    while True:
        pass
while True:
    try:
        _thread.start_new_thread(spin, ())
    except RuntimeError:
        pass
""",
    "threads of many processes": """
import os, threading
for _ in range(8):
    if os.fork() == 0:
        break
while True:
    try:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    except RuntimeError:
        pass
""",
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
async def test_a_thread_bomb_meets_the_limit_on_threads(arena: Arena, bomb: str) -> None:
    result = await arena.attack(bomb, timeout=3)
    arena.check_process_note(result)
    assert result.status in ("process_limit", "timeout") or not arena.counts_processes(), result
