"""What callers are told: a code and facts for programs, a cause and a next step for people.

Some steps are taken by a tool, an option or a function, depending on where the caller is: those are a `Step`, which
each face says in words of its own.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol


class Step(StrEnum):
    """A next step that callers take differently; its value is how a program with the Python API takes it."""

    MORE_TIME = "allow it a longer timeout, or do less per call"
    DATA_AS_FILE = "write data to a file of the session instead"
    OTHER_ARTIFACT = "artifacts() has what there is"
    OPEN_SESSION = "open another session"


Words = Mapping[Step, str]
"""How a face says steps."""


class Message(Protocol):
    """What an error and a note have in common."""

    @property
    def code(self) -> str:
        """What kind it is, such as unknown_session."""

    @property
    def cause(self) -> str:
        """What happened."""

    @property
    def step(self) -> str:
        """What to do about it; empty where there is nothing, or the cause says it."""

    @property
    def facts(self) -> Mapping[str, object]:
        """What it is about: sizes in bytes, times in seconds, names."""


class Note(str):
    """A line on what was cut, lost, hit or left out, and what to do about it; a `Message`."""

    code: str
    cause: str
    step: str
    facts: Mapping[str, object]

    def __new__(cls, code: str, cause: str, step: str = "", **facts: object) -> "Note":
        """`step` is a `Step`, or words that are the same everywhere."""
        note = super().__new__(cls, joined(cause, step))
        note.code, note.cause, note.step, note.facts = code, cause, step, facts
        return note


def joined(cause: str, step: str) -> str:
    """Cause and next step as one line."""
    return f"{cause}; {step}" if step else cause


def worded(message: Message, words: Words) -> str:
    """The line, its step in the words of a face."""
    step = message.step
    return joined(message.cause, words.get(step, step.value) if isinstance(step, Step) else step)
