"""Attack: dying by a signal that makes the kernel write a core dump. Outcome: no file on the host."""

import os
from pathlib import Path

import pytest

from tests.hostile.conftest import Arena

pytestmark = pytest.mark.anyio


@pytest.mark.in_turns
@pytest.mark.parametrize("language", ["python", "bash"])
async def test_an_abort_writes_no_file(arena: Arena, language: str) -> None:
    before = set(os.listdir()) | {path.name for path in Path("/tmp").glob("core*")}
    code = {
        "python": "import os, signal\nfor number in (signal.SIGABRT, signal.SIGSEGV, signal.SIGQUIT):\n"
        "    if os.fork() == 0:\n        signal.signal(number, signal.SIG_DFL)\n        os.kill(os.getpid(), number)\n    os.wait()",
        "bash": 'ulimit -c unlimited 2>/dev/null; for s in ABRT SEGV QUIT; do bash -c "kill -$s \\$\\$"; done; true',
    }[language]
    result = await arena.attack(code, language=language)
    assert result.status == "ok", result
    output = await arena.check(
        "import os\nprint([name for folder in ('/', '/sandbox', '/tmp', '/home') for name in os.listdir(folder) if 'core' in name])",
        result.session_id,
    )
    assert output == "[]\n"
    assert set(os.listdir()) | {path.name for path in Path("/tmp").glob("core*")} == before


async def test_the_limit_also_keeps_a_dump_from_a_program_of_the_host(arena: Arena) -> None:
    # If core_pattern starts a program, a limit of 1 is the only one that the kernel respects.
    # https://www.kernel.org/doc/html/latest/admin-guide/sysctl/kernel.html and fs/coredump.c
    output = await arena.check("import resource\nprint(resource.getrlimit(resource.RLIMIT_CORE))")
    assert output == "(1, 1)\n"
