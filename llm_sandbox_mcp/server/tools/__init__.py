"""The MCP tools: checks the arguments, calls the service, and describes the results; a module for each tool."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
)

from ...base.errors import SandboxError, quoted
from ...service import Service
from ..answering import result_of
from ..arguments import parse_arguments
from ..audience import Context
from ..content import failure
from ..old_names import OldNames, by_our_names
from ..roots import Roots
from ..schemas import (
    Arguments,
    CopyFile,
    ExecuteCode,
    GetArtifacts,
    GetLanguageDetails,
    GetSupportedLanguages,
    InstallLibraries,
    ManageSession,
    define_tools,
)
from ..task_extension import Tasks
from ..words import UNFORESEEN, in_words
from .copy_file import copy_file
from .execute_code import execute_code
from .get_artifacts import get_artifacts
from .install_libraries import install_libraries
from .manage_session import manage_session

_log = logging.getLogger(__name__)


Answer = CallToolResult | InputRequiredResult | dict[str, Any]
"""What a call gets: the result of a tool, a question to the client, or a task."""


@dataclass(frozen=True, slots=True)
class _Tool:
    model: type[Arguments]
    run: Callable[[Context, Any], Awaitable[Answer]]


class Tools:
    """Answers tools/list and tools/call. `host_files`: the only client is the user of this machine, on stdio."""

    def __init__(self, service: Service, *, host_files: bool) -> None:
        self.tasks = Tasks(service.door, partial(result_of, service))
        self.definitions = define_tools(service.profile, service.languages, host_files=host_files)
        self._tools = {
            "execute_code": _Tool(ExecuteCode, partial(execute_code, service, self.tasks)),
            "install_libraries": _Tool(InstallLibraries, partial(install_libraries, service, self.tasks)),
            "copy_file": _Tool(CopyFile, partial(copy_file, service, Roots(service.profile, host_files=host_files))),
            "get_artifacts": _Tool(GetArtifacts, partial(get_artifacts, service, host_files)),
            "manage_session": _Tool(ManageSession, partial(manage_session, service, host_files)),
        }
        self._old_names = OldNames(service) if service.profile.tools.old_names else None
        if self._old_names is not None:
            self._tools |= {
                "get_supported_languages": _Tool(GetSupportedLanguages, self._old_names.supported_languages),
                "get_language_details": _Tool(GetLanguageDetails, self._old_names.language_details),
            }

    async def list_tools(self, _ctx: Context, _params: PaginatedRequestParams | None) -> ListToolsResult:
        """Answers tools/list."""
        return ListToolsResult(tools=list(self.definitions.values()))

    async def call(self, ctx: Context, params: CallToolRequestParams) -> Answer:
        """Answers tools/call. Failed code is a normal result; a mistake of the caller is an error in the result."""
        tool = self._tools.get(params.name)
        if tool is None:
            known = ", ".join(self._tools)
            raise MCPError(INVALID_PARAMS, f"unknown tool {quoted(params.name, 40)}; available: {known}")
        given: Mapping[str, Any] = params.arguments or {}
        if self._old_names is not None:
            given = by_our_names(params.name, given)
        try:
            return await tool.run(ctx, parse_arguments(tool.model, params.name, given))
        except SandboxError as error:
            return failure(in_words(error))
        except Exception:
            _log.exception("%s failed", params.name)
            return failure(UNFORESEEN)
