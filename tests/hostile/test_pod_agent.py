"""Attack: stealing the requests to the agent of a pod, its first process. Outcome: the session loses at most its state,
and delays nobody."""

import anyio
import pytest

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
    again = await arena.service.execute("print(6 * 7)", session_id=result.session_id)
    assert again.stdout.text == "42\n"
    assert any("the sandbox did not answer any more" in note for note in again.notes), again.notes
