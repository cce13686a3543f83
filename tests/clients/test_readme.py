"""What `docs/pages/hosts.md` tells people to set for three frameworks is needed there, and is enough."""

from typing import Any

import pytest

from ..test_readme import block
from .conftest import Run

pytestmark = pytest.mark.only_in_all

BLOCKS = {
    "langchain": "MultiServerMCPClient",
    "llama_index": "McpToolSpec",
    "openai_agents": "MCPServerStdio",
}
"""A word by which each block is found."""

CALLS = {
    "assigns": "x = 41",
    "uses it": "x + 1",
    # Longer than the least patient of them waits.
    "takes long": "import time; time.sleep(7); x + 2",
}


@pytest.fixture(scope="module", params=BLOCKS)
def outside(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def used(outside: str, run: Run) -> dict[str, Any]:
    """What the tools of the block have shown, and those of the defaults."""
    return run(outside, {"block": block("python", BLOCKS[outside]), **CALLS}, program="readme")


def test_with_the_block_variables_are_kept_and_longer_calls_are_answered(used: dict[str, Any]) -> None:
    shown = used["block"]
    assert "42" in shown["uses it"]["text"]
    assert "43" in shown["takes long"]["text"]


def test_without_it_they_are_not(used: dict[str, Any], outside: str) -> None:
    shown = used["defaults"]
    if outside == "openai_agents":
        assert "42" in shown["uses it"]["text"]
        assert "timed out" in shown["takes long"]["text"]
    else:
        assert "session" in shown["uses it"]["text"] and "42" not in shown["uses it"]["text"]
