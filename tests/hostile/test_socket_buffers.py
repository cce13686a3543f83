"""Attack: keeping memory in socket buffers, which the kernel counts separately from the memory of processes. Outcome:
the limit on memory includes it, and the machine's own sockets keep their buffers."""

import pytest

from tests.engines import MIB
from tests.hostile.conftest import Arena

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("control_groups")]

KIB = 1024

BUFFERS = """
import os, socket, struct

WHOLE = b'x' * 60000
kept = []

def fill(near, far):
    near.setblocking(False)
    try:
        for _ in range(200):
            near.send(WHOLE)
    except OSError:
        pass

def held(near, far):
    # What SO_MEMINFO reports: what waits to be read, and what waits to be sent, of datagrams and of streams.
    memory = [struct.unpack('IIIIIIIII', end.getsockopt(socket.SOL_SOCKET, 55, 36)) for end in (near, far)]
    return memory[1][0] + max(memory[0][2], memory[0][5])

def tcp():
    with socket.create_server(('127.0.0.1', 0)) as server:
        near = socket.create_connection(server.getsockname())
        return near, server.accept()[0]

def udp():
    near, far = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    far.bind(('127.0.0.1', 0))
    near.connect(far.getsockname())
    return near, far

def unix():
    return socket.socketpair()

filled, fills = os.pipe()
all_filled, release = os.pipe()
totals, total = os.pipe()
for _ in range(PROCESSES):
    if os.fork() == 0:
        os.close(release)
        try:
            while len(kept) < PAIRS:
                kept.append(MAKE())
                fill(*kept[-1])
        except (OSError, MemoryError):
            pass
        os.close(fills)
        os.read(all_filled, 1)
        os.write(total, struct.pack('Q', sum(held(*pair) for pair in kept)))
        os._exit(0)
# A process that was killed for its memory is waited for no longer.
os.close(fills)
os.close(total)
os.read(filled, 1)
os.close(release)
print(sum(one for one, in struct.iter_unpack('Q', open(totals, 'rb').read())))
"""
# Whatever the limit, the kernel gives each TCP connection a minimum, about as much as one call sends.
LEAST = {"tcp": 100 * KIB, "udp": 0, "unix": 0}
PROCESSES, PAIRS = 10, 100


@pytest.mark.parametrize("make", LEAST)
async def test_buffers_of_sockets_count_as_memory(arena: Arena, make: str) -> None:
    numbers = f"PROCESSES, PAIRS = {PROCESSES}, {PAIRS}\n"
    result = await arena.attack(numbers + BUFFERS.replace("MAKE", make), timeout=20)
    if result.status != "out_of_memory":
        assert result.status == "ok", result
        assert 0 < int(result.stdout.text) <= 128 * MIB + PROCESSES * PAIRS * LEAST[make], result
