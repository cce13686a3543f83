"""Attack: code that needs more processes than it may have. Outcome: `process_limit` if the run failed because of that,
and only then."""

import pytest

from tests.hostile.conftest import Arena

pytestmark = pytest.mark.anyio

START = "import subprocess\nstarted = []\n"
MANY = "for _ in range(100): started.append(subprocess.Popen(['sleep', '1000']))"


async def test_a_run_that_fails_at_the_limit_says_so_by_its_status(arena: Arena) -> None:
    result = await arena.attack(START + MANY)
    arena.check_process_note(result)
    assert result.status == ("process_limit" if arena.counts_processes() else "error"), result
    assert result.session_state == "kept"
    await arena.check("for one in started: one.kill(), one.wait()", result.session_id)
    # A later run that fails for another reason is a plain error.
    again = await arena.execute("1 / 0", session_id=result.session_id)
    assert again.status == "error", again


async def test_a_run_that_copes_with_fewer_processes_succeeds(arena: Arena) -> None:
    result = await arena.attack(
        f"{START}try:\n    {MANY}\nexcept OSError: pass\nfor one in started: one.kill(), one.wait()"
    )
    arena.check_process_note(result)
    assert result.status == "ok", result
