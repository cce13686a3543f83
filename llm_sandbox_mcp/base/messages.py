"""Messages for callers: a code and facts for programs, a cause and a next step for people.

Some steps are taken with a tool, an option or a function, depending on the caller. Each of them is a `Step`, which
each interface puts into its own words.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, Protocol


class Step(StrEnum):
    """A next step that callers take in different ways; its value is the wording for the Python API.

    A wording can contain facts of the message in braces.
    """

    MORE_TIME = "allow it a longer timeout, or do less per call"
    DATA_AS_FILE = "write data to a file of the session instead"
    OTHER_ARTIFACT = "call artifacts() to list those that exist"
    OPEN_SESSION = "open another session"
    INSTALL = "call install() with {library}, language {language}"
    RESTART = "restart() the session, which keeps files and libraries"
    READ_PARTS = "artifact() returns it"
    GIVE_INPUT = "give the text that the code reads as stdin"
    END_SESSION = "do it in the code, or run the code with Sandboxes.run, without a session"
    COPY_FILES = "write() single files into the session"
    SAVED_SESSIONS = "call saved() to list those that exist"
    BRING_DATA = "write() data into the session, or ask the operator to allow hosts (network.domains in the profile)"


Words = Mapping[Step, str]
"""How an interface words the steps."""


class Problem(NamedTuple):
    """What is wrong, and what to do about it, where that is not an error yet, or no longer."""

    cause: str
    step: str = ""


class Message(Protocol):
    """The common part of an error and a note."""

    @property
    def code(self) -> str:
        """The kind of message, such as unknown_session."""

    @property
    def cause(self) -> str:
        """What happened."""

    @property
    def step(self) -> str:
        """What to do about it; empty if there is nothing to do, or if the cause contains it."""

    @property
    def facts(self) -> Mapping[str, object]:
        """Details for programs: sizes in bytes, times in seconds, names."""


class Note(str):
    """One line: something was truncated, lost or left out, or a limit was hit; and what to do about it. A `Message`."""

    code: str
    cause: str
    step: str
    facts: Mapping[str, object]

    def __new__(cls, code: str, cause: str, step: str = "", **facts: object) -> "Note":
        """`step` is a `Step`, or text that is the same in every interface."""
        note = super().__new__(cls, joined(cause, step, facts))
        note.code, note.cause, note.step, note.facts = code, cause, step, facts
        return note


def joined(
    cause: str, step: str = "", facts: Mapping[str, object] = MappingProxyType({}), words: Words = MappingProxyType({})
) -> str:
    """Cause and next step as one line; a `Step` in the words of an interface, or else in those of the Python API."""
    if isinstance(step, Step):
        step = words.get(step, step.value).format_map(facts)
    return f"{cause}; {step}" if step else cause


def worded(message: Message, words: Words) -> str:
    """The message as one line, with the step in the words of an interface."""
    return joined(message.cause, message.step, message.facts, words)


def listed(names: Iterable[str], most: int) -> str:
    """The names with commas; only the first of them, and how many more there are, if they are many."""
    found = [*names]
    return ", ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "")
