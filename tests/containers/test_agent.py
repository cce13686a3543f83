"""The answers of a container's agent, where the container's files cannot be seen from outside."""

from pathlib import Path

import pytest

from llm_sandbox_mcp.backends.base import Fullness, Sandbox
from llm_sandbox_mcp.backends.containers.sandbox import ContainerSandbox, read_fullness
from llm_sandbox_mcp.profile.profile import Profile
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
    await sandbox._agent.send(early)
    assert await sandbox.fullness(thorough=True) == before


def test_malformed_lines_are_ignored() -> None:
    """Code has the same user as the agent, so it can write lines instead of the agent at any moment."""
    said = b"usage 0 0 0\n" + b"9" * 5000 + b" 1 1\n0 0\n\xff\n1 2 3 4\n"
    assert read_fullness(said) == Fullness()


def test_the_answer_of_the_agent_is_parsed() -> None:
    assert read_fullness(b"5 10 3\n0 20 19\n5 0 0\n/sandbox/a b\n") == Fullness(disk=True, entries=6, large=True)
    assert read_fullness(b"/home/large\n").large
