"""Attack: code that needs more processes than it may have. Outcome: `process_limit` where it failed by that, and only there."""

import pytest

from tests.hostile.conftest import Arena

pytestmark = pytest.mark.anyio

START = "import subprocess\nstarted = []\n"
MANY = "for _ in range(100): started.append(subprocess.Popen(['sleep', '1000']))"


async def test_a_run_that_fails_at_the_limit_says_so_by_its_status(arena: Arena) -> None:
    result = await arena.attack(START + MANY)
    arena.told_of_processes(result)
    assert result.status == ("process_limit" if arena.counts_processes() else "error"), result
    assert result.session_state == "kept"
    await arena.check("for one in started: one.kill(), one.wait()", result.session_id)
    # What failed for another reason later is an error and nothing else.
    again = await arena.execute("1 / 0", session_id=result.session_id)
    assert again.status == "error", again


async def test_a_run_that_can_do_with_fewer_succeeds(arena: Arena) -> None:
    result = await arena.attack(
        f"{START}try:\n    {MANY}\nexcept OSError: pass\nfor one in started: one.kill(), one.wait()"
    )
    arena.told_of_processes(result)
    assert result.status == "ok", result
