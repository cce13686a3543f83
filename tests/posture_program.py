"""A server in a separate process, whose sandboxes contain a process of each kind. It runs until its input ends.

Usage: `python posture_program.py PROFILE NAME PORT`. The runner of code gets the name NAME. The package index of the
profile is at PORT and never answers, so that an installation keeps running.
"""

import json
import shutil
import sys

import anyio
import anyio.to_thread

from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute, install
from llm_sandbox_mcp.wiring import open_service

COUNT_LAYERS = """
import ctypes
libc, layers = ctypes.CDLL(None), 0
while True:
    ruleset = libc.syscall(444, (4).to_bytes(8, 'little'), 8, 0)
    if ruleset < 0 or libc.syscall(446, ruleset, 0) < 0:
        break
    layers += 1
layers
"""
"""Counts how many Landlock layers code can add to those that already apply to it."""
NAMED = """
import subprocess
open('/proc/self/comm', 'w').write({!r})
child = subprocess.Popen(['sleep', '1000'], stdin=subprocess.PIPE)
daemon = subprocess.run(['setsid', '-f', 'sleep', '2000'])
"""
COMPILED = """
#include <cstdio>
#include <unistd.h>
int main() { std::puts("up"); std::fflush(stdout); for (;;) pause(); }
"""


async def program(service: Service, session_id: str, up: anyio.Event) -> None:
    """Runs a compiled program until it is cancelled."""

    async def note(*_: object) -> None:
        up.set()

    await execute(service, COMPILED, language="cpp", session_id=session_id, on_output=note)


async def main() -> None:
    _, profile, name, port = sys.argv
    async with (
        open_service(load_profile(profile)) as service,
        await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=int(port)) as index,
        anyio.create_task_group() as tasks,
    ):
        with anyio.fail_after(60):
            # First: afterwards all sandboxes are forks, if any is.
            probed = {check.name: check.state for check in await service.backend.probe()}
            counted = await execute(service, COUNT_LAYERS, keep_session=False)
            session = await execute(service, NAMED.format(name))
            shell = await execute(service, "sleep 3000 & echo on", language="bash", session_id=session.session_id)
            assert counted.status == session.status == shell.status == "ok", (counted, session, shell)
            if shutil.which("g++", path="/usr/bin"):
                up = anyio.Event()
                tasks.start_soon(program, service, session.session_id, up)
                await up.wait()
            requested = anyio.Event()

            async def hang(stream: anyio.abc.SocketStream) -> None:
                async with stream:
                    requested.set()
                    await anyio.sleep_forever()

            tasks.start_soon(index.serve, hang)
            tasks.start_soon(install, service, ["numpy"])
            await requested.wait()
        print(json.dumps({"layers": int(counted.result or -1), "probed": probed}), flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
        tasks.cancel_scope.cancel()


anyio.run(main)
