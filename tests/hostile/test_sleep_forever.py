"""Attack: waiting forever without using the processor. Outcome: the deadline, which counts wall-clock time, ends it."""

import pytest

from tests.hostile.conftest import Arena

pytestmark = pytest.mark.anyio

SLEEPS = {
    "sleep": "import time\ntime.sleep(10 ** 6)",
    "an event": "import threading\nthreading.Event().wait()",
    "a pipe": "import os\nos.read(os.pipe()[0], 1)",
    "select": "import select\nselect.select([], [], [])",
    "a signal": "import signal\nsignal.pause()",
    "a child": "import subprocess\nsubprocess.run(['sleep', '1000'])",
    "a lock of its own": "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()",
    "a FIFO": "import os\nos.mkfifo('fifo')\nopen('fifo')",
    "a socket": "import socket\nserver = socket.create_server(('127.0.0.1', 0))\nserver.accept()",
    "asyncio": "import asyncio\nawait asyncio.Event().wait()",
}


@pytest.mark.parametrize("code", SLEEPS.values(), ids=SLEEPS)
async def test_a_sleeper_is_woken_by_the_deadline_and_keeps_its_state(arena: Arena, code: str) -> None:
    result = await arena.attack("kept = 1\n" + code, timeout=0.5)
    assert (result.status, result.exit_code, result.session_state) == ("timeout", 130, "kept"), result
    assert any("stopped after 500ms" in note for note in result.notes)
    assert await arena.check("print(kept)", result.session_id) == "1\n"


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("bash", "sleep 1000"),
        ("bash", "wait; read x < <(sleep 1000)"),
        ("javascript", "await new Promise(() => setInterval(() => {}, 1000))"),
    ],
)
async def test_sleepers_in_other_languages_are_ended_at_the_deadline(arena: Arena, language: str, code: str) -> None:
    result = await arena.attack(code, language=language, timeout=0.5)
    assert result.status == "timeout", result


async def test_input_is_at_eof(arena: Arena) -> None:
    result = await arena.attack("input('your password? ')")
    assert result.status == "error"
    assert "EOFError" in result.stderr.text
