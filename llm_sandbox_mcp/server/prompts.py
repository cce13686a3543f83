"""The prompts that clients offer to their users: everyday tasks, said so that a model computes them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    TextContent,
)

from ..base.errors import quoted
from ..base.text import valid
from ..profile.profile import Profile
from .audience import Context
from .descriptions import describe_network, describe_views


@dataclass(frozen=True, slots=True)
class _Field:
    """An argument of a prompt."""

    description: str
    default: str = ""
    """What stands for it where the user gave nothing; empty: the user has to give it."""


@dataclass(frozen=True, slots=True)
class _Template:
    """A prompt with places for its arguments, and for the facts `bring` and `network` of this server."""

    title: str
    description: str
    fields: Mapping[str, _Field]
    text: str


_TEMPLATES = {
    "analyse_a_file": _Template(
        "Analyse a file",
        "Reads a file with code and answers a question about it",
        {
            "file": _Field("Its path or name"),
            "question": _Field("What to find out", "What does it contain, and what stands out?"),
        },
        """\
Analyse the file {file} by running code; keep to one session. {bring}
First look at its size, its columns or parts, their types, and a few rows, and say what is missing, doubled or strange.
Then answer: {question}
Compute every number that you give. Draw a figure where it shows more than numbers do.
Begin your report with the answer; then give the numbers and figures behind it, and what stays uncertain.""",
    ),
    "plot": _Template(
        "Plot",
        "Draws a figure and looks at it before showing it",
        {
            "what": _Field("What the figure should show"),
            "data": _Field("Where its data is: a file, numbers, a formula", "what was said before"),
        },
        """\
Draw this with code: {what}
The data: {data}. {bring}
Choose the kind of chart that makes the comparison easiest. Give it a title, and name each axis with its unit.
Look at the picture that is returned; if text overlaps, is cut off, or the scale hides something, draw it again.
Save the last version as a PNG file, and say in one sentence what it shows.""",
    ),
    "check_a_claim": _Template(
        "Check a claim by computing",
        "Decides with code whether a statement is true",
        {"claim": _Field("The statement to check")},
        """\
Check this claim by computing, not from memory: {claim}
First write down what would have to be true, and which result would refute it. Then run code that computes it, and \
check the result in a second, different way. {network}; say so if the claim needs data that is not here.
Conclude with one of: true, false, cannot be decided by computing. Name the numbers that decide it.""",
    ),
}


class Prompts:
    """Answers the prompts/ requests."""

    def __init__(self, profile: Profile, *, host_files: bool) -> None:
        bring = "A file that the session does not have yet comes in by copy_file, with content."
        if host_files and profile.files.opened:
            bring = f"{describe_views(profile)} Any other file comes in by copy_file, with content."
        self._facts = {
            "bring": bring,
            "network": describe_network(profile),
        }

    async def list_prompts(self, _ctx: Context, _params: PaginatedRequestParams | None) -> ListPromptsResult:
        """Answers prompts/list."""
        return ListPromptsResult(
            prompts=[
                Prompt(
                    name=name,
                    title=template.title,
                    description=template.description,
                    arguments=[
                        PromptArgument(name=key, description=field.description, required=not field.default)
                        for key, field in template.fields.items()
                    ],
                )
                for name, template in _TEMPLATES.items()
            ]
        )

    async def get(self, _ctx: Context, params: GetPromptRequestParams) -> GetPromptResult:
        """Answers prompts/get."""
        template = _TEMPLATES.get(params.name)
        if template is None:
            raise _refusal(params.name, f"unknown prompt {quoted(params.name)}; available: {', '.join(_TEMPLATES)}")
        given = {key: value for key, value in (params.arguments or {}).items() if value.strip()}
        for key in given:
            if key not in template.fields:
                raise _refusal(
                    params.name, f"{quoted(key)} is no argument of {params.name}; it has {', '.join(template.fields)}"
                )
        values = {key: given.get(key, field.default) for key, field in template.fields.items()}
        for key, value in values.items():
            if not value:
                raise _refusal(params.name, f"{key}: missing; give {template.fields[key].description.lower()}")
        text = valid(template.text.format(**values, **self._facts))
        message = PromptMessage(role="user", content=TextContent(type="text", text=text))
        return GetPromptResult(description=template.description, messages=[message])


def _refusal(name: str, reason: str) -> MCPError:
    data: dict[str, Any] = {"name": valid(name)}
    return MCPError(INVALID_PARAMS, valid(reason), data)
