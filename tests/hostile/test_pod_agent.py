"""Attack: the agent of a pod, its first process. Outcome: the session loses its state at most, and holds up nobody."""

import anyio
import pytest

from tests.hostile.conftest import Arena
from tests.hostile.deviations import PODS

# Not a fixture of the same name, which would be given the server of whichever backend came before.
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
"""Takes what the server asks a pod's agent, which is its first process, in its place.

Who waits longest is given what comes: that is the agent, until the last line has it wait anew, behind all others.
"""


async def test_an_agent_whose_requests_are_taken_costs_its_session_its_state_and_says_so(arena: Arena) -> None:
    with anyio.fail_after(10):
        result = await arena.attack(THIEVES, timeout=0.5, limits={"grace": 0.5})
    assert (result.status, result.session_state) == ("ok", "fresh"), result
    again = await arena.service.execute("print(6 * 7)", session_id=result.session_id)
    assert again.stdout.text == "42\n"
    assert any("the sandbox did not answer any more" in note for note in again.notes), again.notes
