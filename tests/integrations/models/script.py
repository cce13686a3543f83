"""The script of a model: what it says and what it is shown, for all frameworks.

The other modules in this folder make it a model of each framework. They are programs that run in the environment with
the frameworks. Their argument is the recipe; they read the calls of the model and write what it was shown, as JSON.
"""

import json
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from types import ModuleType

import anyio

QUESTION = "How much is it?"
TOOL = "execute_code"
END = "That is all."
"""The message of a model after its last call of the tool."""


@dataclass
class Result:
    """The result of one call, as the model is shown it."""

    text: str
    images: list[str]
    """Each as a `data:` URL."""


@dataclass
class Script:
    """One conversation: the calls to make, and their results."""

    calls: Sequence[Mapping[str, str]]
    offered: Mapping[str, object] = field(default_factory=dict)
    """The tool as the model is offered it: its name, its description, the schema of its arguments."""
    results: Sequence[Result] = ()
    said: str = ""

    def next(self, results: Sequence[Result]) -> dict[str, str] | None:
        """The arguments of the next call for a model that has been shown these results; None after the last call."""
        self.results = results
        if len(results) == len(self.calls):
            return None
        arguments = dict(self.calls[len(results)])
        # Models of a server see the id of their session, as text or as JSON, and pass it on themselves.
        if results and (
            session := re.search(r"^session: (\w+)|\"session_id\": ?\"(\w+)\"", results[0].text, re.MULTILINE)
        ):
            arguments.setdefault("session_id", session[1] or session[2])
        return arguments


def run(converse: Callable[[ModuleType, Script], Awaitable[str]]) -> None:
    """Runs all conversations, one after the other."""
    recipe = import_module(sys.argv[1])
    scripts = [Script(calls) for calls in json.load(sys.stdin)]

    async def converse_all() -> None:
        for script in scripts:
            script.said = await converse(recipe, script)

    anyio.run(converse_all)
    json.dump([asdict(script) for script in scripts], sys.stdout)
