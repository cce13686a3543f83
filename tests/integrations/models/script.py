"""What a model says and what it is shown, whichever framework it belongs to.

The modules beside this one make it a model of each framework, and are programs that run in the frameworks' environment:
the recipe is their argument, what models are to say comes in, what they were shown goes out, both as JSON.
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
"""What a model says when it has called the tool as often as it was to."""


@dataclass
class Result:
    """What a model is shown of one call."""

    text: str
    images: list[str]
    """As URLs that hold all of them."""


@dataclass
class Script:
    """One conversation: the calls to make, and what came of it."""

    calls: Sequence[Mapping[str, str]]
    offered: Mapping[str, object] = field(default_factory=dict)
    """What the model was told of the tool: its name, its description, the schema of its arguments."""
    results: Sequence[Result] = ()
    said: str = ""

    def next(self, results: Sequence[Result]) -> dict[str, str] | None:
        """The arguments of the next call for a model that has been shown these results; nothing at the end."""
        self.results = results
        if len(results) == len(self.calls):
            return None
        arguments = dict(self.calls[len(results)])
        # A server's models are told of their session, as text or as JSON, and go on with it themselves.
        if results and (
            session := re.search(r"^session: (\w+)|\"session_id\": ?\"(\w+)\"", results[0].text, re.MULTILINE)
        ):
            arguments.setdefault("session_id", session[1] or session[2])
        return arguments


def run(converse: Callable[[ModuleType, Script], Awaitable[str]]) -> None:
    """Holds all conversations, one after the other."""
    recipe = import_module(sys.argv[1])
    scripts = [Script(calls) for calls in json.load(sys.stdin)]

    async def hold() -> None:
        for script in scripts:
            script.said = await converse(recipe, script)

    anyio.run(hold)
    json.dump([asdict(script) for script in scripts], sys.stdout)
