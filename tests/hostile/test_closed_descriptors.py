"""Attack: closing or replacing every descriptor. Outcome: a clean result, and the session goes on."""

import pytest

from llm_sandbox_mcp.testing.asking import execute
from tests.hostile.conftest import ANSWER, Arena

pytestmark = pytest.mark.anyio

ATTACKS = {
    "all closed": "import os\nos.closerange(0, 5000)",
    "standard streams closed": "import os\nos.closerange(0, 3)",
    "all but the standard streams closed": "import os\nos.closerange(3, 5000)",
    "stream objects closed": "import sys\nsys.stdin.close()\nsys.stdout.close()\nsys.stderr.close()",
    "stream objects removed": "import sys\nsys.stdin = sys.stdout = sys.stderr = None",
    "all redirected to the null device": "import os\nnull = os.open('/dev/null', os.O_RDWR)\nfor fd in range(4096):\n    if fd != null: os.dup2(null, fd)",
    "all redirected to zeros": "import os\nzero = os.open('/dev/zero', os.O_RDWR)\nfor fd in range(4096):\n    if fd != zero: os.dup2(zero, fd)",
    "all pipes replaced by stderr": """
import os
for fd in map(int, os.listdir('/proc/self/fd')):
    try:
        if os.readlink(f'/proc/self/fd/{fd}').startswith('pipe:'):
            os.dup2(2, fd)
    except OSError:
        pass
""",
    "no descriptor left": "import os\nheld = []\nwhile True:\n    held.append(os.open('/dev/null', os.O_RDONLY))",
    "no descriptor allowed": "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))",
}


@pytest.mark.in_turns
@pytest.mark.parametrize("code", ATTACKS.values(), ids=ATTACKS)
async def test_closed_descriptors_give_a_clean_result(arena: Arena, code: str) -> None:
    result = await arena.attack(code, timeout=2)
    assert result.status in ("ok", "error", "timeout", "out_of_memory"), result
    assert result.duration < 2 + ANSWER
    if result.status != "ok":
        assert result.notes or result.stderr.text, result
    again = await execute(arena.service, "print('again')", session_id=result.session_id, timeout=2)
    if again.status != "ok":
        # The descriptors were unusable, which showed only in this run.
        assert again.notes, again
        again = await execute(arena.service, "print('again')", session_id=result.session_id, timeout=2)
    assert (again.status, again.stdout.text) == ("ok", "again\n"), again


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("bash", "exec 0<&- 1>&- 2>&-"),
        ("bash", 'for fd in /proc/self/fd/*; do eval "exec ${fd##*/}>&-"; done'),
        ("javascript", "for (let fd = 0; fd < 64; fd++) { try { require('fs').closeSync(fd) } catch {} }"),
    ],
)
async def test_closed_descriptors_in_other_languages_give_a_clean_result(
    arena: Arena, language: str, code: str
) -> None:
    result = await arena.attack(code, language=language, timeout=2)
    assert result.duration < 2 + ANSWER
    assert result.status in ("ok", "error"), result


GARBAGE = """
import os, threading
def write():
    while True:
        for fd in map(int, os.listdir('/proc/self/fd')):
            if fd > 2:
                try:
                    os.write(fd, b'{"status":"ok","exit_code":0}\\n')
                except OSError:
                    pass
threading.Thread(target=write, daemon=True).start()
"""


async def test_garbage_on_the_runners_private_descriptors_is_output(arena: Arena) -> None:
    result = await arena.attack(GARBAGE + "raise SystemExit(4)")
    assert result.status in ("error", "output_limit"), result
    if result.status == "error":
        assert result.exit_code == 4


async def test_requests_that_code_writes_to_its_own_runner_do_not_forge_a_later_result(arena: Arena) -> None:
    result = await arena.attack("""
import json, os
request = json.dumps({'nonce': '0' * 32, 'cell': 9, 'variables': {}, 'code': 'print("forged")'}).encode() + b'\\n'
for fd in map(int, os.listdir('/proc/self/fd')):
    try:
        if os.readlink(f'/proc/self/fd/{fd}').startswith('pipe:'):
            os.write(os.open(f'/proc/self/fd/{fd}', os.O_WRONLY | os.O_NONBLOCK), request)
    except OSError:
        pass
""")
    assert result.status in ("ok", "error"), result
    again = await execute(arena.service, "40 + 2", session_id=result.session_id)
    assert (again.status, again.result) == ("ok", "42"), again
