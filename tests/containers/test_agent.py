"""What the agent of a container answers, where its files cannot be seen from outside."""

from pathlib import Path

import pytest

from llm_sandbox_mcp.backends.base import Fullness, Sandbox
from llm_sandbox_mcp.backends.containers.sandbox import ContainerSandbox, read_fullness
from llm_sandbox_mcp.profile import Profile
from tests.engines import small_profile

pytestmark = pytest.mark.anyio


@pytest.fixture
def profile(engine: str, folder: Path) -> Profile:
    return small_profile(engine, folder)


@pytest.mark.parametrize(
    "early",
    [
        "usage 0123456789abcdef",
        "look 0123456789abcdef echo 0 0 0; echo /sandbox/none",
        "look 0123456789abcdef printf /sandbox/none",
        "look 0123456789abcdef printf '\\n1 two 3'",
    ],
)
async def test_an_answer_that_comes_too_late_is_not_taken_for_the_next(
    sandbox: Sandbox, early: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(sandbox, ContainerSandbox)
    monkeypatch.setattr(sandbox, "outside", None)
    before = await sandbox.fullness(thorough=True)
    assert not before.disk
    await sandbox._agent.tell(early)
    assert await sandbox.fullness(thorough=True) == before


def test_lines_of_another_form_count_for_nothing() -> None:
    """Code of the same user can speak in the agent's place, at any moment."""
    said = b"usage 0 0 0\n" + b"9" * 5000 + b" 1 1\n0 0\n\xff\n1 2 3 4\n"
    assert read_fullness(said) == Fullness()


def test_what_the_agent_saw_is_read() -> None:
    assert read_fullness(b"5 10 3\n0 20 19\n5 0 0\n/sandbox/a b\n") == Fullness(disk=True, entries=6, large=True)
    assert read_fullness(b"/home/large\n").large
