"""An open network for one sandbox: what the launcher's forked child does before it becomes slirp4netns.

slirp4netns gives the sandbox a network device, and turns its packets into ordinary connections of its own from the
machine's network. It runs as the sandbox's user and is root only in the sandbox's user namespace; of that it keeps one
capability and a view of /etc and /run. No process of the sandbox is ever in the machine's network.
"""

import fcntl
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Network, collapse_addresses

from .. import libc
from .forked import to_the_end

RESOLVER = "10.0.2.3"
"""The address at which slirp4netns forwards to the machine's own name server."""
TUN = "/dev/net/tun"

_NAMESPACE_FD, _READY_FD = 3, 4
_ADDRESS, _GATEWAY = "10.0.2.100", "10.0.2.2"
_GATEWAY_AND_RESOLVER_MASK = "255.255.255.254"
_BROADCAST = "255.255.255.255"
_DEVICE = b"tap0"
_MTU = 65520
_BLOCKED = (
    # In packets, these mean the machine that gets them.
    "0.0.0.0/8",
    # The network of slirp4netns. Its two addresses that answer have a route of their own.
    "10.0.2.0/24",
    # slirp4netns closes its gateway, which represents the machine's loopback. But a packet that is addressed to a
    # loopback address would still get there, and a socket that is bound to the device sends such packets.
    "127.0.0.0/8",
    # The addresses where clouds serve a machine its secrets.
    "169.254.0.0/16",
    "100.100.100.200/32",
    "168.63.129.16/32",
    "192.0.0.192/32",
    # Multicast, which reaches all services of the machine that listen everywhere, and what is reserved or broadcast.
    "224.0.0.0/4",
    "240.0.0.0/4",
)
_FIB_TRIE = "/proc/net/fib_trie"
_TUN_NUMBER = os.makedev(10, 200)

_TUNSETIFF, _TUNSETPERSIST, _TUNSETTXFILTER = 0x400454CA, 0x400454CB, 0x400454D1
_IFF_TAP, _IFF_NO_PI = 0x2, 0x1000
_SIOCSIFADDR, _SIOCSIFBRDADDR, _SIOCSIFNETMASK, _SIOCSIFDSTADDR = 0x8916, 0x891A, 0x891C, 0x8918
_SIOCSIFMTU, _SIOCSIFFLAGS = 0x8922, 0x8914
_IFF_UP = 0x1
_SIOCADDRT = 0x890B
_RTF_UP, _RTF_GATEWAY, _RTF_REJECT = 0x1, 0x2, 0x200
_ROUTE = "@L16s16s16sHhLBB3hhPLLH"
"""struct rtentry of linux/route.h."""


def command(program: str) -> list[str]:
    """The argv of slirp4netns, which writes "1" to its ready descriptor once the network works."""
    return [
        program,
        *(f"--mtu={_MTU}", "--disable-host-loopback", "--enable-sandbox", "--enable-seccomp"),
        *(f"--ready-fd={_READY_FD}", "--netns-type=path", f"/proc/self/fd/{_NAMESPACE_FD}", _DEVICE.decode()),
    ]


def keep(namespace: int, ready: int) -> None:
    """Moves the two descriptors to the numbers that `command` uses; closes all others except the standard streams."""
    copies = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _READY_FD + 1) for descriptor in (namespace, ready)]
    os.dup2(copies[0], _NAMESPACE_FD)
    os.dup2(copies[1], _READY_FD)
    os.closerange(_READY_FD + 1, os.sysconf("SC_OPEN_MAX"))


def own_devices() -> None:
    """Gives this process, which is root, its own /dev with only the device that opens networks, usable by any user."""
    libc.own_mounts()
    libc.mount("tmpfs", "/dev", "tmpfs", libc.MS_NOSUID | libc.MS_NOEXEC, "mode=0755")
    os.mkdir(os.path.dirname(TUN), 0o755)
    os.mknod(TUN, 0o020666, _TUN_NUMBER)
    os.chmod(TUN, 0o666)


def enter() -> None:
    """Makes this process root in the user namespace that owns the network, makes the device there that lets packets
    out, and blocks addresses that code must not reach. Must be called as the user who made the sandbox."""
    blocked = blocked_networks(own_networks())
    libc.setns(libc.owner_of(_NAMESPACE_FD), libc.CLONE_NEWUSER)
    # In a separate process, because there is no way back to the machine's network.
    pid = os.fork()
    if pid == 0:
        with to_the_end("cannot keep the network from addresses that code must not reach"):
            libc.setns(_NAMESPACE_FD, libc.CLONE_NEWNET)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
                _make_device(control)
                # Code could remove these routes only with a capability that it does not have.
                for network in blocked:
                    _add_route(control, network, "0.0.0.0", _RTF_REJECT)
    if os.waitpid(pid, 0)[1] != 0:
        raise OSError("the network could reach addresses that code must not reach")


def own_networks(table: Iterable[str] | None = None) -> Sequence[IPv4Network]:
    """The IPv4 networks of which every address is the machine's own or a broadcast address; most have one address."""
    if table is None:
        with open(_FIB_TRIE) as file:
            table = file.readlines()
    # Transparent proxies make every address local, for packets with a mark: it cannot be true of all packets.
    return sorted({network for network in _local(table) if network.prefixlen > 0})


def _local(table: Iterable[str]) -> Iterator[IPv4Network]:
    address = ""
    for line in table:
        match line.split():
            case ["|--", address]:
                pass
            case [length, _, "LOCAL" | "BROADCAST"]:
                yield IPv4Network(f"{address}{length}")


def blocked_networks(own: Iterable[IPv4Network]) -> Sequence[IPv4Network]:
    """Everything that code must not reach, each address once: the kernel refuses to add a route twice."""
    return list(collapse_addresses([*map(IPv4Network, _BLOCKED), *own]))


def _make_device(control: socket.socket) -> None:
    """Makes the device that slirp4netns will open, and lets only frames to its gateway and its resolver through, and
    broadcasts, which ask where the two are.

    Blocked addresses alone would not be enough: a socket that is bound to the device sends multicast past all routes.
    """
    reached = [b"\x52\x55" + socket.inet_aton(address) for address in (_GATEWAY, RESOLVER)] + [b"\xff" * 6]
    with open(TUN, "r+b", buffering=0) as tap:
        fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", _DEVICE, _IFF_TAP | _IFF_NO_PI))
        fcntl.ioctl(tap, _TUNSETTXFILTER, struct.pack("HH", 0, len(reached)) + b"".join(reached))
        fcntl.ioctl(tap, _TUNSETPERSIST, 1)
    for number, address in (
        (_SIOCSIFADDR, _ADDRESS),
        # slirp4netns would give it a network of which the last address is for broadcasts. It may be the machine's own.
        (_SIOCSIFBRDADDR, _BROADCAST),
        (_SIOCSIFNETMASK, _GATEWAY_AND_RESOLVER_MASK),
        (_SIOCSIFDSTADDR, _GATEWAY),
    ):
        fcntl.ioctl(control, number, struct.pack("16s16s8x", _DEVICE, _sockaddr(address)))
    fcntl.ioctl(control, _SIOCSIFMTU, struct.pack("16si20x", _DEVICE, _MTU))
    fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH22x", _DEVICE, _IFF_UP))
    _add_route(control, IPv4Network("0.0.0.0/0"), _GATEWAY, _RTF_GATEWAY)


def _add_route(control: socket.socket, network: IPv4Network, gateway: str, flags: int) -> None:
    places = (_sockaddr(str(place)) for place in (network.network_address, gateway, network.netmask))
    fcntl.ioctl(control, _SIOCADDRT, struct.pack(_ROUTE, 0, *places, _RTF_UP | flags, *(0,) * 12))


def _sockaddr(address: str) -> bytes:
    return struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))
