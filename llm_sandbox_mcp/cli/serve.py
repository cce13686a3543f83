"""`llm-sandbox-mcp serve`."""

import argparse
from collections.abc import Mapping

import anyio

from .opening import opened, read_profile


def main(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Serves MCP until the client goes or a signal comes."""
    profile = read_profile(options, environ)

    async def serve() -> None:
        from ..server import build_server
        from ..server.transports import serve_http, serve_stdio

        local = options.transport == "stdio"
        async with opened(profile, environ) as service:
            server = build_server(service, host_files=local)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(service.warm)
                await (serve_stdio(server) if local else serve_http(server, options.host, options.port))
                tasks.cancel_scope.cancel()

    anyio.run(serve)
    return 0
