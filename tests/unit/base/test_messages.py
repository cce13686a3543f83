"""Messages to callers: one line for people, a code and facts for programs, the next step in each interface's terms."""

import pytest

from llm_sandbox_mcp.base.errors import CapacityReached, InvalidArgument, SandboxError, UnknownSession
from llm_sandbox_mcp.base.messages import Message, Note, Step, worded
from llm_sandbox_mcp.cli.words import OPTIONS
from llm_sandbox_mcp.compat.rest.words import REQUESTS
from llm_sandbox_mcp.runs.requests import checked_code
from llm_sandbox_mcp.server.words import TOOLS

MESSAGES = (
    Note("timeout", "stopped after 5s", Step.MORE_TIME, seconds=5.0),
    SandboxError("stopped after 5s", Step.MORE_TIME),
)


@pytest.mark.parametrize("message", MESSAGES)
def test_each_interface_words_the_step_in_its_own_terms(message: Message) -> None:
    assert str(message) == "stopped after 5s; allow it a longer timeout, or do less per call"
    assert worded(message, TOOLS) == "stopped after 5s; give a larger timeout_seconds or do less per call"
    assert worded(message, OPTIONS) == "stopped after 5s; give a larger --timeout, or do less"
    assert worded(message, {}) == str(message)


def test_interfaces_with_many_sessions_have_words_for_every_step() -> None:
    assert TOOLS.keys() == REQUESTS.keys() == {*Step}


def test_a_step_given_as_text_is_the_same_everywhere() -> None:
    for message in (Note("lost", "it is gone", "try again"), SandboxError("it is gone", "try again")):
        assert worded(message, TOOLS) == str(message) == "it is gone; try again"
    for alone in (Note("lost", "it is gone"), SandboxError("it is gone")):
        assert worded(alone, TOOLS) == str(alone) == "it is gone"


def test_a_program_reads_the_code_and_the_facts() -> None:
    note = Note("artifact_too_large", "a was not kept", size=9, limit=4)
    assert (note.code, note.facts) == ("artifact_too_large", {"size": 9, "limit": 4})
    assert UnknownSession("x").code == "unknown_session"
    assert CapacityReached("x", most=3).code == "capacity_reached"
    with pytest.raises(InvalidArgument) as raised:
        checked_code("x" * 10, 9)
    assert raised.value.code == "invalid_argument"
    assert raised.value.facts == {"size": 10, "limit": 9}
