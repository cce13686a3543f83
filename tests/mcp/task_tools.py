"""A server whose tools have the names that the conformance suite calls for tasks; each is one call of a real tool.

Run as a program with the same options as `llm-sandbox-mcp serve --transport http`.
"""

import argparse
import os
from collections.abc import Mapping
from typing import Any

import anyio
from anyio.abc import TaskGroup
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from llm_sandbox_mcp.cli.logs import log_to_stderr
from llm_sandbox_mcp.cli.opening import opened
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.server import build_server
from llm_sandbox_mcp.server.transports import serve_http
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import start


class Renamed:
    """Middleware that makes each call of a tool of the suite a call of one of ours."""

    def __init__(self, service: Service, tasks: TaskGroup) -> None:
        self._service = service
        self._tasks = tasks

    async def __call__(self, ctx: ServerRequestContext[Any], call_next: CallNext) -> HandlerResult:
        if ctx.method == "tools/call" and isinstance(ctx.params, dict):
            ctx.params.update(await self._ours(ctx.params["name"], ctx.params["arguments"]))
        return await call_next(ctx)

    async def _ours(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if name == "greet":  # is never a task
            return {"name": "manage_session", "arguments": {"action": "list"}}
        if name == "slow_compute":
            code = f"import time\ntime.sleep({arguments['seconds']})"
            return {"name": "execute_code", "arguments": {"code": code, "timeout_seconds": 90}}
        if name == "failing_job":
            return {"name": "execute_code", "arguments": {"code": "1", "session_id": await self._closing()}}
        return {}

    async def _closing(self) -> str:
        """A session that is busy, and closed after a second: a call that waits for it gets an error."""
        run = await start(self._service, "while True: pass")

        async def close() -> None:
            await run.wait(1)
            await self._service.sessions.close(run.session_id)

        self._tasks.start_soon(close)
        return run.session_id


async def main(options: argparse.Namespace) -> None:
    log_to_stderr()
    async with opened(load_profile(options.profile), os.environ) as service, anyio.create_task_group() as tasks:
        server = build_server(service, host_files=False)
        server.middleware.insert(0, Renamed(service, tasks))
        await serve_http(server, service, "127.0.0.1", options.port)
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--profile")
    anyio.run(main, parser.parse_args())
