"""Attack: every way out over the network. Outcome: nothing is reachable. Nothing here leaves the machine, even if
isolation fails."""

import json
import os
import secrets
import socket

import pytest

from tests.hostile.conftest import Arena, Tolerated

pytestmark = pytest.mark.anyio

REACH = """
import errno, json, socket
reached = {}
def reach(name, family, kind, address):
    try:
        with socket.socket(family, kind) as one:
            one.settimeout(1)
            one.connect(address)
            one.send(b'x')
        reached[name] = 'reached'
    except OSError as error:
        reached[name] = errno.errorcode.get(error.errno, type(error).__name__)
"""


async def test_the_only_interface_is_its_own_loopback(arena: Arena) -> None:
    output = await arena.check("""
import json
print(json.dumps([[line.split(':')[0].strip() for line in open('/proc/net/dev').read().splitlines()[2:]], open('/proc/net/route').read().splitlines()[1:]]))
""")
    names, routes = json.loads(output)
    assert set(names) <= {
        "lo",
        "tunl0",
        "sit0",
        "ip6tnl0",
        "gre0",
        "gretap0",
        "erspan0",
        "ip_vti0",
        "ip6_vti0",
        "ip6gre0",
    }
    assert routes == []


async def test_no_address_outside_can_be_reached(arena: Arena) -> None:
    # Addresses for documentation (RFC 5737, 3849), link-local metadata, multicast, broadcast, and a private address.
    output = await arena.check(
        REACH
        + """
for host in ('192.0.2.1', '198.51.100.1', '203.0.113.1', '169.254.169.254', '224.0.0.1', '255.255.255.255', '10.0.0.1'):
    for port in (53, 80, 443):
        reach(f'tcp {host} {port}', socket.AF_INET, socket.SOCK_STREAM, (host, port))
        reach(f'udp {host} {port}', socket.AF_INET, socket.SOCK_DGRAM, (host, port))
for host in ('2001:db8::1', 'fd00:ec2::254', 'ff02::1'):
    reach(f'tcp {host}', socket.AF_INET6, socket.SOCK_STREAM, (host, 80))
    reach(f'udp {host}', socket.AF_INET6, socket.SOCK_DGRAM, (host, 53))
print(json.dumps(reached))
""",
        timeout=20,
    )
    reached = json.loads(output)
    assert len(reached) == 48
    assert "reached" not in reached.values(), reached


async def test_no_name_is_resolved(arena: Arena) -> None:
    output = await arena.check(
        """
import socket
for name in ('example.test', 'metadata.google.internal', 'host.docker.internal'):
    try:
        print(socket.getaddrinfo(name, 80))
    except socket.gaierror:
        pass
""",
        timeout=20,
    )
    assert output == ""


@pytest.mark.in_turns
async def test_what_listens_on_the_host_is_out_of_reach(arena: Arena) -> None:
    name = f"\0sandbox-test-{secrets.token_hex(6)}"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.create_server(("0.0.0.0", 0)) as every,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as path,
    ):
        udp.bind(("127.0.0.1", 0))
        abstract.bind(name)
        abstract.listen()
        place = str(arena.canaries.public.parent / "socket")
        path.bind(place)
        path.listen()
        os.chmod(place, 0o777)
        listening = (tcp, every, udp, abstract, path)
        for one in listening:
            one.setblocking(False)
        output = await arena.check(
            REACH
            + f"""
reach('tcp', socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', {tcp.getsockname()[1]}))
reach('every', socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', {every.getsockname()[1]}))
reach('abstract', socket.AF_UNIX, socket.SOCK_STREAM, {name!r})
reach('path', socket.AF_UNIX, socket.SOCK_STREAM, {place!r})
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    one.sendto(b'x', ('127.0.0.1', {udp.getsockname()[1]}))
print(json.dumps(reached))
"""
        )
        assert "reached" not in json.loads(output).values(), output
        for one in (tcp, every, abstract, path):
            with pytest.raises(BlockingIOError):
                one.accept()
        with pytest.raises(BlockingIOError):
            udp.recv(1)


async def test_neighbours_do_not_reach_each_other(arena: Arena) -> None:
    port = int(
        await arena.check(
            "import socket\nserver = socket.create_server(('127.0.0.1', 0))\nserver.setblocking(False)\n"
            "hidden = socket.socket(socket.AF_UNIX)\nhidden.bind('\\0meeting')\nhidden.listen()\nprint(server.getsockname()[1])",
            arena.neighbour,
        )
    )
    output = await arena.check(
        REACH
        + f"""
reach('tcp', socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', {port}))
reach('abstract', socket.AF_UNIX, socket.SOCK_STREAM, '\\0meeting')
print(json.dumps(reached))
"""
    )
    assert set(json.loads(output).values()) == {"ECONNREFUSED"}


async def test_engine_sockets_and_the_users_folders_are_absent(arena: Arena, tolerated: Tolerated) -> None:
    output = await arena.check("""
import json, os
print(json.dumps([path for path in (
    '/var/run/docker.sock', '/run/docker.sock', '/run/podman/podman.sock', '/run/containerd/containerd.sock', '/run/crio/crio.sock',
    '/run/dbus/system_bus_socket', '/var/run/dbus', '/run/user', '/run/systemd', '/run', '/var', '/tmp/.X11-unix', '/root',
    '/home/.ssh', '/etc/shadow', '/etc/ssh', '/etc/sudoers', '/etc/kubernetes', '/var/run/secrets', '/.dockerenv', '/media',
    '/srv', '/boot', '/sys', '/lost+found', '/proc/1/root/run',
) if os.path.lexists(path)]))
""")
    tolerated(json.loads(output))


async def test_only_another_name_of_the_working_directory_is_below_mnt(arena: Arena) -> None:
    assert await arena.check("import os; print(os.listdir('/mnt'), os.readlink('/mnt/data'))") == "['data'] /sandbox\n"


async def test_the_environment_and_descriptors_are_the_known_ones(arena: Arena) -> None:
    output = await arena.check("""
import json, os
fds = {fd: os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd') if os.path.lexists(f'/proc/self/fd/{fd}')}
print(json.dumps([dict(os.environ), fds]))
""")
    environment, descriptors = json.loads(output)
    managers = ("PYTHON", "GEM", "BUNDLE_PATH", "GOPROXY", "npm_config_")
    assert {key for key in environment if not key.startswith((*managers, "SANDBOX_", "MPL", "LC_"))} <= {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "LANG",
    }
    assert "SANDBOX_TEST_CANARY" not in environment
    assert all(target.startswith(("pipe:", "/proc/")) or target == "/dev/null" for target in descriptors.values()), (
        descriptors
    )
