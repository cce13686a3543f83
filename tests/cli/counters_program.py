"""A program that uses the library, run by an ordinary user: reports as JSON what its sandboxes take from each other.

Its arguments are JSON and a profile. The JSON maps a name to two pieces of code: one uses up a resource in one sandbox,
and the other uses the resource in other sandboxes.
"""

import ctypes
import json
import os
import signal
import sys
from contextlib import suppress
from typing import Any

import anyio

from llm_sandbox_mcp.base.errors import SandboxError
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service

_PR_SET_CHILD_SUBREAPER = 36


async def run(service: Service, code: str, session: str = "") -> tuple[str, str]:
    """Runs the code; returns how it ended, and in which session."""
    try:
        done = await execute(service, code, session_id=session)
    except SandboxError as error:
        return f"{type(error).__name__}: {error}", session
    return done.status if done.status == "ok" else f"{done.status}: {done.stderr.text[-200:]}", done.session_id


async def use(service: Service, codes: dict[str, list[str]]) -> dict[str, Any]:
    """For each resource: what an older and a new session report while it is used up, and a new session afterwards."""
    found = {}
    _, neighbour = await run(service, "count = 0")
    for name, (take, other) in codes.items():
        _, taker = await run(service, take)
        during = [(await run(service, other, session))[0] for session in (neighbour, "")]
        await service.sessions.close(taker)
        after, _ = await run(service, other)
        found[name] = {"during": during, "after": after}
    return found


async def main() -> None:
    with anyio.fail_after(90):
        async with open_service(load_profile(sys.argv[2])) as service:
            found = await use(service, json.loads(sys.argv[1]))
    print(json.dumps(found))


if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
    raise SystemExit("this process cannot become a subreaper")
anyio.run(main)
# Processes that use much of a resource end slowly, perhaps after their parent.
signal.alarm(60)
with suppress(ChildProcessError):
    while True:
        os.waitpid(-1, 0)
