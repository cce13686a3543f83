"""Attack: reaching this machine from a sandbox with an open network. Outcome: the network is reached, this machine is
not."""

import json
import secrets
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from llm_sandbox_mcp.backends.embedded.connecting import own_addresses
from tests.hostile.calls import ATTEMPT, REPORT
from tests.hostile.conftest import ATTACKED, Arena
from tests.outside import ANSWER, PORT, Outside, outside

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("limits", [{"network": {"mode": "open"}}], indirect=True, ids=["network"]),
]


@pytest.fixture(scope="package", params=[name for name in ("embedded",) if name in ATTACKED])
def backend_name(request: pytest.FixtureRequest) -> str:
    """The only backend that opens the network itself; containers and pods use the engine's."""
    name: str = request.param
    return name


@pytest.fixture
def world(arena: Arena) -> Iterator[Outside]:
    """The world outside, which is removed before the arena checks what is left."""
    with outside() as made:
        yield made


FETCH = """
import socket
def fetch(address, port):
    with socket.create_connection((address, port), 10) as one:
        return one.makefile().read()
"""

KNOCK = """
import json, select, socket, struct
number = socket.if_nametoindex('tap0')
WAYS = {
    'plainly': (),
    'from the device': ((socket.SOL_SOCKET, 25, b'tap0'),),
    'by its number': ((socket.IPPROTO_IP, 50, struct.pack('!I', number)),),
    'without a route': ((socket.SOL_SOCKET, socket.SO_DONTROUTE, 1),),
    'from the device, without a route': ((socket.SOL_SOCKET, 25, b'tap0'), (socket.SOL_SOCKET, socket.SO_DONTROUTE, 1)),
    'from any source': ((socket.IPPROTO_IP, 15, 1),),
}
def knock(places):
    reached, waiting = [], {}
    poll = select.poll()
    for address, port in places:
        for way, options in WAYS.items():
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                one = socket.socket(socket.AF_INET, kind)
                one.setblocking(False)
                try:
                    for option in options:
                        one.setsockopt(*option)
                    one.connect_ex((address, port))
                    if kind == socket.SOCK_DGRAM:
                        one.send(b'x')
                except OSError:
                    continue
                waiting[one.fileno()] = one, f'{address}:{port} {way}'
                poll.register(one, select.POLLIN)
    while (ready := poll.poll(3000)):
        for descriptor, _ in ready:
            one, name = waiting[descriptor]
            poll.unregister(descriptor)
            try:
                if one.recv(1):
                    reached.append(name)
            except OSError:
                pass
    return reached
"""


async def test_the_network_is_reached(arena: Arena, world: Outside) -> None:
    assert await arena.check(f"{FETCH}\nprint(fetch({world.address!r}, {PORT}))") == f"{ANSWER}\n"
    names = await arena.check(
        "print(open('/etc/resolv.conf').read(), end='')\nimport socket\nprint(socket.gethostbyname('localhost'))"
    )
    assert names == "nameserver 10.0.2.3\n127.0.0.1\n"


async def test_this_machine_is_out_of_reach_by_every_address_and_option(arena: Arena, world: Outside) -> None:
    with ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("0.0.0.0", 0)))
        port = tcp.getsockname()[1]
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("0.0.0.0", port))
        hidden = stack.enter_context(socket.socket(socket.AF_UNIX))
        name = f"\0sandbox-test-{secrets.token_hex(6)}"
        hidden.bind(name)
        hidden.listen()
        for one in (tcp, udp, hidden):
            one.setblocking(False)
        gateways = ("10.0.2.1", "10.0.2.2", "10.0.2.3", "10.0.2.255", "10.0.2.100")
        loopbacks = ("127.0.0.1", "127.0.0.2", "127.255.255.254", "0.0.0.0", "255.255.255.255")
        own = own_addresses()
        assert world.gateway in own
        # Opened only now: a sandbox blocks the addresses that this machine has when the sandbox starts.
        session = (await arena.service.execute("0")).session_id
        places = [(address, port) for address in (*loopbacks, *gateways, *own)]
        reached = json.loads(await arena.check(f"{KNOCK}\nprint(json.dumps(knock({places!r})))", session, timeout=25))
        assert reached == []
        code = f"import socket\nwith socket.socket(socket.AF_UNIX) as one:\n    print(one.connect_ex({name!r}))"
        assert await arena.check(code, session) != "0\n"
        for listening in (tcp, hidden):
            with pytest.raises(BlockingIOError):
                listening.accept()
        with pytest.raises(BlockingIOError):
            udp.recv(1)


async def test_link_local_addresses_are_blocked(arena: Arena, world: Outside) -> None:
    with socket.create_connection((world.link_local, PORT), 5) as here:
        assert here.recv(100).decode() == ANSWER
    places = [(world.link_local, PORT), (world.address, PORT)]
    reached = json.loads(await arena.check(f"{KNOCK}\nprint(json.dumps(knock({places!r})))", timeout=25))
    assert f"{world.address}:{PORT} plainly" in reached
    assert not [way for way in reached if way.startswith(world.link_local)]


async def test_other_metadata_addresses_of_clouds_are_blocked(arena: Arena) -> None:
    # Read from the routes and not tried: on a machine in such a cloud these addresses are real.
    blocked = await arena.check(
        """
import ipaddress, socket, struct
for line in open('/proc/net/route').read().splitlines()[1:]:
    _, destination, _, flags, _, _, _, mask, *_ = line.split()
    if int(flags, 16) & 0x200:
        address, mask = (socket.inet_ntoa(struct.pack('=I', int(word, 16))) for word in (destination, mask))
        print(ipaddress.ip_network(f'{address}/{mask}'))
"""
    )
    assert {"169.254.0.0/16", "100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32"} <= set(blocked.split())


async def test_code_cannot_change_its_network(arena: Arena) -> None:
    output = await arena.check(
        f"""{ATTEMPT}
import fcntl, socket, struct
def place(address):
    return struct.pack('=HH4s8x', socket.AF_INET, 0, socket.inet_aton(address))
route = struct.pack('@L16s16s16sHhLBB3hhPLLH', 0, place('127.0.0.0'), place('0.0.0.0'), place('255.0.0.0'), 0x201, *(0,) * 12)
down = struct.pack('16sH14x', b'tap0', 0)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    attempt('delete a route', fcntl.ioctl, control, 0x890c, route)
    attempt('take the device down', fcntl.ioctl, control, 0x8914, down)
attempt('raw', socket.socket, socket.AF_INET, socket.SOCK_RAW, 1)
attempt('packets', socket.socket, socket.AF_PACKET, socket.SOCK_RAW, 0)
attempt('routes', socket.socket, socket.AF_NETLINK, socket.SOCK_RAW, 0)
attempt('another device', open, '/dev/net/tun', 'rb')
attempt('a setting', write, '/proc/sys/net/ipv4/conf/all/route_localnet', '1')
{REPORT}"""
    )
    attempts = json.loads(output)
    assert len(attempts) == 7 and "done" not in attempts.values(), attempts
    status = await arena.check("print(open('/proc/self/status').read())")
    capabilities = [line.split()[1] for line in status.splitlines() if line.startswith("Cap")]
    assert len(capabilities) == 5 and set(capabilities) == {"0" * 16}


async def test_the_process_that_opens_the_network_is_not_seen_and_not_counted(arena: Arena) -> None:
    seen = await arena.check(
        "import os\nprint(sorted(open(f'/proc/{pid}/comm').read() for pid in os.listdir('/proc') if pid.isdigit()))"
    )
    assert "slirp" not in seen
    many = await arena.check(
        """
import os, signal
there = sum(len(os.listdir(f'/proc/{pid}/task')) for pid in os.listdir('/proc') if pid.isdigit())
children = []
while True:
    try:
        pid = os.fork()
    except BlockingIOError:
        break
    if pid == 0:
        signal.pause()
    children.append(pid)
for pid in children:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
print(there + len(children))
"""
    )
    # The same as without a network: bubblewrap itself is the one process that code does not see.
    assert int(many) == arena.service.profile.limits.pids - 1


async def test_a_flood_of_connections_leaves_the_network_up(arena: Arena, world: Outside) -> None:
    output = await arena.check(
        f"""
import socket
held = []
try:
    while True:
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(({world.address!r}, {PORT}))
        held.append(one)
except OSError:
    print(len(held))
del held
"""
    )
    assert int(output) > 1000
    assert await arena.check(f"{FETCH}\nprint(fetch({world.address!r}, {PORT}))") == f"{ANSWER}\n"
