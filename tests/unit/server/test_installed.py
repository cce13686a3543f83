"""What callers see of an installation that has ended: its notes, and what is installed."""

from llm_sandbox_mcp.base.messages import Note
from llm_sandbox_mcp.base.results import Installation, Library
from llm_sandbox_mcp.server.answering import describe_installed, installed


def test_notes_of_an_installation_are_in_its_text_and_in_its_value() -> None:
    note = Note("library_renamed", "libraries: PIL is installed as pillow")
    answer = installed(Installation("s1", (Library("pillow", "11.0"),), notes=(note,)))
    assert answer.notes == ["libraries: PIL is installed as pillow"]
    assert describe_installed(answer) == (
        "session: s1\nnote: libraries: PIL is installed as pillow\ninstalled: pillow 11.0"
    )
