"""Attack: keeping a pod from ending: by stealing the requests to its agent, its first process, or by stopping processes
that its node starts. Outcome: the session loses at most its state, and delays nobody."""

from contextlib import suppress

import anyio
import pytest

from llm_sandbox_mcp.backends.base import Sandbox
from llm_sandbox_mcp.backends.layout import PATH
from llm_sandbox_mcp.base.errors import SandboxError
from llm_sandbox_mcp.testing.asking import execute
from tests.hostile.conftest import Arena
from tests.hostile.deviations import PODS

# Not a fixture of the same name: it would get the server of the backend that ran before.
pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend_name", PODS, indirect=True, scope="package")]

THIEVES = """
import os
def steal():
    os.setsid()
    requests = os.open('/proc/1/fd/0', os.O_RDONLY)
    while True: os.read(requests, 65536)
def waits(thief):
    return open(f'/proc/{thief}/stat').read().split()[2] == 'S'
thieves = [os.fork() or steal() for _ in range(16)]
while not all(map(waits, thieves)): pass
os.write(os.open('/proc/1/fd/0', os.O_WRONLY), b'\\n')
"""
"""Steals the requests that the server sends to a pod's agent, which is the pod's first process.

The process that has waited longest gets the next data of a pipe. That is the agent, until the last line makes it wait
again, behind all thieves.
"""


async def test_stealing_the_requests_to_the_agent_costs_the_session_its_state_and_is_reported(arena: Arena) -> None:
    with anyio.fail_after(10):
        result = await arena.attack(THIEVES, timeout=0.5, limits={"grace": 0.5})
    assert (result.status, result.session_state) == ("ok", "fresh"), result
    again = await execute(arena.service, "print(6 * 7)", session_id=result.session_id)
    assert again.stdout.text == "42\n"
    assert any("the sandbox did not answer any more" in note for note in again.notes), again.notes


HUNTER = """
import os, signal
known = {name for name in os.listdir('/proc') if name.isdigit()} | {str(os.getpid())}
print('hunting', flush=True)
while True:
    for name in os.listdir('/proc'):
        if name.isdigit() and name not in known:
            try:
                os.kill(int(name), signal.SIGSTOP)
            except OSError:
                pass
"""
"""Stops every process that is not there at its start. The node's own program becomes the code's user, and only then the
process that it starts; a node waits for that for ever."""


async def test_a_pod_whose_code_stops_what_its_node_starts_is_gone_with_its_sandbox(arena: Arena) -> None:
    backend, policy = arena.service.backend, arena.service.profile.policy()

    async def start(sandbox: Sandbox) -> None:
        with suppress(SandboxError):
            await sandbox.spawn(("true",), {"PATH": PATH})

    # Each start is stopped in time by chance: one of many is. The arena checks that nothing of the pod is left.
    async with (
        backend.sandbox(policy, backend.image_of("python")) as sandbox,
        await sandbox.spawn(("python3", "-c", HUNTER), {"PATH": PATH}) as hunter,
    ):
        assert await hunter.stdout.receive() == b"hunting\n"
        arena.state()  # so that the check knows of this pod
        with anyio.move_on_after(2):
            async with anyio.create_task_group() as tasks:
                for _ in range(16):
                    tasks.start_soon(start, sandbox)
