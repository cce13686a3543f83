"""The checks after an attack run after every case, even one that is expected to fail: no case can avoid them."""

import subprocess
import sys
from pathlib import Path

import pytest

from .test_stage import environment, prepare

pytestmark = pytest.mark.only_in_all

CASES = """
import logging
import pytest
from llm_sandbox_mcp.base.errors import SandboxError
from llm_sandbox_mcp.testing.asking import execute, install

pytestmark = pytest.mark.anyio
fails = pytest.mark.xfail(raises=(AssertionError, SandboxError), reason="by intent")

async def test_leaves_things_as_they_were(arena):
    assert await arena.check("print(1)") == "1\\n"

@fails
async def test_fails_as_expected(arena):
    assert await arena.check("print(1)") == ""

async def test_shows_a_secret_in_a_result_that_the_case_does_not_check(arena):
    await execute(arena.service, f"print({arena.canaries.environment!r})")

async def test_shows_a_secret_in_a_file(arena):
    secret = arena.canaries.content[arena.canaries.private]
    await execute(arena.service, f"open('found', 'w').write({secret[:9]!r} + {secret[9:]!r})")

async def test_shows_a_secret_in_an_error(arena):
    with pytest.raises(SandboxError):
        await install(arena.service, [f"/{arena.canaries.environment}"])

async def test_writes_a_secret_to_the_log(arena):
    logging.getLogger("llm_sandbox_mcp.service").warning("%s", arena.canaries.environment)

@fails
async def test_fails_as_expected_and_shows_a_secret(arena):
    assert await arena.check(f"print({arena.canaries.environment!r})") == ""

async def test_changes_what_the_host_keeps(arena):
    for path in arena.canaries.content:
        path.write_text("x")

async def test_is_skipped_after_it_ended_the_neighbour(arena):
    await arena.service.sessions.close(arena.neighbour)
    await arena.service.pool_until(lambda now: not now.closing)
    pytest.skip("too late")

@fails
async def test_fails_as_expected_and_has_no_neighbour(arena):
    assert await arena.check("print(1)") == ""
"""
OWN_ARENA = """
import pytest

@pytest.fixture(autouse=True)
def arena(): pass

def test_has_its_own_arena(): pass
"""
CAME_BACK = "ERROR a secret of the host came back"
EXPECTED = {
    "test_leaves_things_as_they_were": "PASSED",
    "test_fails_as_expected": "XFAIL",
    "test_shows_a_secret_in_a_result_that_the_case_does_not_check": CAME_BACK,
    "test_shows_a_secret_in_a_file": CAME_BACK,
    "test_shows_a_secret_in_an_error": CAME_BACK,
    "test_writes_a_secret_to_the_log": CAME_BACK,
    "test_fails_as_expected_and_shows_a_secret": CAME_BACK,
    "test_changes_what_the_host_keeps": "ERROR a file of the host was changed",
    "test_is_skipped_after_it_ended_the_neighbour": "ERROR UnknownSession",
    "test_fails_as_expected_and_has_no_neighbour": "ERROR UnknownSession",
    "test_has_its_own_arena": "ERROR nothing was checked after it",
}

FIXTURES = """
import pytest

fails = pytest.mark.xfail(raises=AssertionError, reason="by intent")

@pytest.fixture
def does_not_start(): raise AssertionError

@pytest.fixture
def does_not_end():
    yield
    raise AssertionError

@fails
def test_does_not_even_start(does_not_start): pass

@fails
def test_fails_and_leaves_something(does_not_end): raise AssertionError
"""


def worst_outcomes(folder: Path, *tests: str, attacks: bool) -> dict[str, str]:
    """Runs a folder with tests of these texts; returns the line with the worst outcome of each test."""
    place = folder / "attacks"
    place.mkdir()
    prepare(folder)
    (place / "conftest.py").write_text("from tests.hostile.conftest import *" if attacks else "")
    for number, text in enumerate(tests):
        (place / f"test_{number}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "--tb=no", "-p", "no:cacheprovider", "-p", "no:randomly", place],
        cwd=folder,
        env={**environment(folder), "COLUMNS": "400", "SANDBOX_ATTACK": "embedded"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if "::" in line and line.split()[0].isupper()]
    order = ("PASSED", "XFAIL", "XPASS", "FAILED", "ERROR")
    lines.sort(key=lambda line: order.index(line.split()[0]))
    assert lines, done.stdout + done.stderr
    return {line.partition("::")[2].partition(" ")[0].partition("[")[0]: line for line in lines}


@pytest.mark.usefixtures("embedded")
def test_expected_failures_and_skips_do_not_hide_failed_checks_after_a_case(tmp_path: Path) -> None:
    found = worst_outcomes(tmp_path, CASES, OWN_ARENA, attacks=True)
    assert {*found} == {*EXPECTED}, found
    for name, expected in EXPECTED.items():
        outcome, _, reason = expected.partition(" ")
        assert found[name].startswith(outcome) and reason in found[name], found


def test_an_expected_failure_does_not_cover_fixtures(tmp_path: Path) -> None:
    found = worst_outcomes(tmp_path, FIXTURES, attacks=False)
    assert {name: line.split()[0] for name, line in found.items()} == {
        "test_does_not_even_start": "ERROR",
        "test_fails_and_leaves_something": "ERROR",
    }
