"""The tools about languages that callers of LLM Sandbox's server know; they exist if the profile has `tools.old_names`.

The format of the answers is that of that server; their content comes from the languages themselves.
"""

import json
from collections.abc import Mapping
from typing import Any

from mcp.types import CallToolResult, TextContent

from ..base.errors import UnknownLanguage
from ..base.text import valid
from ..service import Service
from .audience import Context
from .content import failure
from .schemas import GetLanguageDetails, GetSupportedLanguages


def by_our_names(tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments with `timeout` of `execute_code` renamed to `timeout_seconds`; both together are refused later."""
    if tool != "execute_code" or "timeout" not in arguments or "timeout_seconds" in arguments:
        return arguments
    return {("timeout_seconds" if name == "timeout" else name): value for name, value in arguments.items()}


class OldNames:
    """Answers the calls of these tools."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def supported_languages(self, _ctx: Context, _arguments: GetSupportedLanguages) -> CallToolResult:
        """Answers get_supported_languages: a list of names."""
        return _as_json([*self._service.languages])

    async def language_details(self, _ctx: Context, arguments: GetLanguageDetails) -> CallToolResult:
        """Answers get_language_details: an object; for an unknown language it has only the key `error`."""
        try:
            return _as_json(await self._details(arguments.language))
        except UnknownLanguage as error:
            return failure(json.dumps({"error": str(error)}))

    async def all_details(self) -> dict[str, object]:
        """The details of every language by its name, instead of this server's own list of languages."""
        # One after the other: each language without an answer yet takes a sandbox for a moment, and these may be few.
        return {name: await self._details(name) for name in self._service.languages}

    async def _details(self, language: str) -> dict[str, object]:
        found: dict[str, Any] = await self._service.describe_language(language)
        return {
            "version": found["version"],
            **({"problem": found["problem"]} if "problem" in found else {}),
            "package_manager": found["package_manager"] or "",
            "preinstalled_libraries": [library["name"] for library in found["libraries"]],
            "use_cases": found["uses"],
            "visualization_support": bool(found["figures"]),
            "examples": [example | {"description": example["title"]} for example in found["examples"]],
        }


def _as_json(value: object) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=valid(json.dumps(value, indent=1)))])
