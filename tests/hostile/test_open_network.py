"""Attack: reaching this machine from a sandbox with an open network. Outcome: the network is reached, this machine is
not."""

import json
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from ipaddress import ip_network
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.backends.embedded.connecting import own_networks
from llm_sandbox_mcp.testing.asking import execute
from tests.engines import host_folder
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
    'to the device': ((socket.IPPROTO_IP, socket.IP_MULTICAST_IF, struct.pack('@4s4si', b'', b'', number)),),
    'through the gateway': ((socket.IPPROTO_IP, socket.IP_OPTIONS, b'\\x83\\x07\\x04\\x0a\\x00\\x02\\x02\\x00'),),
}
FARTHER = (socket.SOL_SOCKET, socket.SO_BROADCAST, 1), (socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 4)
def knock(places):
    reached, waiting = [], {}
    poll = select.poll()
    for address, port in places:
        for way, options in WAYS.items():
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                one, name = socket.socket(socket.AF_INET, kind), f'{address}:{port} {way}'
                one.setblocking(False)
                try:
                    for option in options if kind == socket.SOCK_STREAM else (*FARTHER, *options):
                        one.setsockopt(*option)
                    one.connect_ex((address, port))
                    if kind == socket.SOCK_DGRAM:
                        one.send(name.encode())
                except OSError:
                    continue
                waiting[one.fileno()] = one, name
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
        own = [str(network[0]) for network in own_networks()]
        assert world.gateway in own
        # Opened only now: a sandbox blocks the addresses that this machine has when the sandbox starts.
        session = (await execute(arena.service, "0")).session_id
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


GROUPS = {"224.0.0.1": PORT, "224.0.0.251": 5353, "239.255.255.250": 1900}
"""All machines of a link, mDNS and SSDP: multicast groups, with a port of each."""
WIDE = ("192.0.2.0/24", "10.0.0.0/8")
"""Networks of which all addresses are local to the machine that has these routes."""

LEAVE = f"""{KNOCK}
places, outside = json.loads(PLACES)
with socket.create_connection(outside, 10):
    pass
link = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
try:
    link.sendto(b'x', ('ff02::1', {PORT}, 0, number))
except OSError:
    pass
print(json.dumps(knock(places)))
"""


async def test_services_of_this_machine_are_out_of_reach_by_groups_broadcasts_and_wide_routes(
    world: Outside,
) -> None:
    # The machine is a namespace here, so that no packet of this test leaves the real one, and no route changes there.
    world.configure("link", "set", "lo", "up")
    for network in WIDE:
        world.configure("route", "add", "local", network, "dev", "lo")
    # This machine owns an address that is blocked anyway.
    world.configure("address", "add", "192.0.0.192/32", "dev", "lo")
    own = [world.address, "192.0.0.192", "192.0.2.9", "10.9.9.9"]
    broadcasts = [
        "255.255.255.255",
        "10.0.2.255",
        "10.0.2.100",
        str(ip_network(f"{world.address}/30", strict=False)[-1]),
    ]
    with world.inside() as inside, host_folder() as folder, ExitStack() as stack:
        services = {port: stack.enter_context(inside(serving, port, world)) for port in GROUPS.values()}
        link = stack.enter_context(inside(socket.socket, socket.AF_INET6, socket.SOCK_DGRAM))
        link.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        link.bind(("::", PORT))
        # Whoever is on this machine reaches the services by all these addresses.
        with inside(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as here:
            for address, port in (*GROUPS.items(), *((address, PORT) for address in own)):
                here.sendto(b"from here", (address, port))
                assert services[port].recv(100) == b"from here"
        outside = stack.enter_context(socket.create_server((world.gateway, 0)))
        places = [*GROUPS.items(), *((address, PORT) for address in (*broadcasts, *own))]
        code = LEAVE.replace("PLACES", repr(json.dumps([places, outside.getsockname()])))
        assert await on(world, code, folder) == "[]\n"
        assert [heard for one in (*services.values(), link) for heard in received(one)] == []


def serving(port: int, world: Outside) -> socket.socket:
    """A service at every address of the machine, and in all groups."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.settimeout(10)
    made.bind(("0.0.0.0", port))
    for group in GROUPS:
        membership = socket.inet_aton(group) + socket.inet_aton(world.address)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    return made


def received(service: socket.socket) -> Iterator[str]:
    """What a service was sent until now."""
    service.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            yield service.recv(100).decode()


async def on(world: Outside, code: str, folder: Path) -> str:
    """What code prints that runs in a sandbox with an open network, of a server on the machine outside."""
    profile = folder / "own.toml"
    profile.write_text(
        '[backend]\nname = "embedded"\n[network]\nmode = "open"\n[languages.python]\nlibraries = []\n'
        f'[server]\nruntime = "{folder}/runtime"\n'
    )
    server = [sys.executable, "-m", "llm_sandbox_mcp", "run", "--profile", str(profile), "-c", code]
    done = await anyio.run_process(["nsenter", f"--net=/run/netns/{world.namespace}", *server], check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


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
