"""The MCP server: tools, resources and prompts over the service. Nothing else in this project imports `mcp`."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INTERNAL_ERROR,
    CallToolRequestParams,
    PromptsCapability,
    ResourcesCapability,
    ServerCapabilities,
    ToolsCapability,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from .. import __version__
from ..service import Service
from .audience import Audience
from .calls import Calls, keep_room, watch_cancellations
from .descriptions import describe_network
from .introduction import introduce
from .prompts import Prompts
from .resources import Resources
from .task_extension import EXTENSION, TaskParams
from .tools import Tools
from .words import UNFORESEEN

_INSTRUCTIONS = """\
Runs code in isolated sandboxes. execute_code returns a session_id: pass it again to keep the variables and files of \
that session, and to the other tools. {network}; install_libraries installs libraries into a session. Save \
files and figures in the working directory: they are returned as artifacts, and images are shown.{kept}"""
_KEPT = " Sessions outlive the server: after it was started again, go on with the same session_id."

_log = logging.getLogger(__name__)


class SandboxServer(Server[Audience]):
    """The low-level server. It announces that none of its lists changes: artifacts are not listed, see `Resources`."""

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> ServerCapabilities:
        found = super().get_capabilities(
            notification_options, experimental_capabilities, extensions, protocol_version=protocol_version
        )
        # For the 2026 protocol, the package announces that all lists can change if a client can listen to anything.
        changed: dict[str, Any] = {
            "resources": ResourcesCapability(subscribe=True, list_changed=False),
            "tools": ToolsCapability(list_changed=False),
            "prompts": PromptsCapability(list_changed=False),
        }
        if protocol_version in MODERN_PROTOCOL_VERSIONS:
            changed["extensions"] = {**(found.extensions or {}), EXTENSION: {}}
        return found.model_copy(update=changed)


def build_server(service: Service, *, host_files: bool) -> SandboxServer:
    """The server over an open service. `host_files`: the only client is the user of this machine, on stdio."""
    tools = Tools(service, host_files=host_files)
    resources = Resources(service, host_files=host_files)
    prompts = Prompts(service.profile, host_files=host_files)
    audiences: set[Audience] = set()

    def notify(session_id: str, names: tuple[str, ...]) -> None:
        for audience in audiences:
            audience.notify(session_id, names)

    @asynccontextmanager
    async def serve_audience(_server: Server[Audience]) -> AsyncIterator[Audience]:
        audience = Audience(service, Calls(service.door, alone=host_files))
        async with audience.open():
            audiences.add(audience)
            try:
                yield audience
            finally:
                audiences.discard(audience)

    service.files.on_artifacts_changed(notify)
    server = SandboxServer(
        "llm-sandbox-mcp",
        version=__version__,
        title="LLM Sandbox",
        instructions=_INSTRUCTIONS.format(
            network=describe_network(service.profile), kept=_KEPT if service.profile.sessions.keep else ""
        ),
        lifespan=serve_audience,
        get_tool_input_schema=lambda name: tools.definitions[name].input_schema if name in tools.definitions else None,
        on_list_tools=tools.list_tools,
        on_list_resources=resources.list_resources,
        on_list_resource_templates=resources.list_templates,
        on_read_resource=resources.read,
        on_subscribe_resource=resources.subscribe,
        on_unsubscribe_resource=resources.unsubscribe,
        on_subscriptions_listen=lambda ctx, params: ctx.lifespan_context.listen(ctx, params),
        on_list_prompts=prompts.list_prompts,
        on_get_prompt=prompts.get,
        on_completion=resources.complete,
    )
    # Not `on_call_tool`: its type has no place for a task.
    server.add_request_handler("tools/call", CallToolRequestParams, tools.call)
    server.add_request_handler("tasks/get", TaskParams, tools.tasks.get)
    server.add_request_handler("tasks/update", TaskParams, tools.tasks.update)
    server.add_request_handler("tasks/cancel", TaskParams, tools.tasks.cancel)
    server.middleware += [keep_room, _hide_internals, introduce, watch_cancellations]
    return server


async def _hide_internals(ctx: ServerRequestContext[Any], call_next: CallNext) -> HandlerResult:
    # In the 2025 protocol the package sends the text of any exception to the client.
    try:
        return await call_next(ctx)
    except (MCPError, ValidationError):
        raise
    except Exception as error:
        _log.exception("%s failed", ctx.method)
        raise MCPError(INTERNAL_ERROR, UNFORESEEN) from error
