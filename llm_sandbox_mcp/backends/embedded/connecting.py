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

from .. import libc
from .forked import to_the_end

RESOLVER = "10.0.2.3"
"""The address at which slirp4netns forwards to the machine's own name server."""
TUN = "/dev/net/tun"

_NAMESPACE_FD, _READY_FD = 3, 4
_OWN_NETWORK = "10.0.2."
_DEVICE = "tap0"
_BLOCKED = (
    # slirp4netns closes its gateway, which represents the machine's loopback. But a packet that is addressed to a
    # loopback address would still get there, and a socket that is bound to the device sends such packets.
    "127.0.0.0/8",
    # The addresses where clouds serve a machine its secrets.
    "169.254.0.0/16",
    "100.100.100.200/32",
    "168.63.129.16/32",
    "192.0.0.192/32",
)
_FIB_TRIE = "/proc/net/fib_trie"
_TUN_NUMBER = os.makedev(10, 200)

_SIOCADDRT = 0x890B
_RTF_UP, _RTF_REJECT = 0x1, 0x200
_ROUTE = "@L16s16s16sHhLBB3hhPLLH"
"""struct rtentry of linux/route.h."""


def command(program: str) -> list[str]:
    """The argv of slirp4netns, which writes "1" to its ready descriptor once the network works."""
    return [
        program,
        *("--configure", "--mtu=65520", "--disable-host-loopback", "--enable-sandbox", "--enable-seccomp"),
        *(f"--ready-fd={_READY_FD}", "--netns-type=path", f"/proc/self/fd/{_NAMESPACE_FD}", _DEVICE),
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
    """Makes this process root in the user namespace that owns the network, and blocks addresses that code must not
    reach. Must be called as the user who made the sandbox."""
    blocked = [*_BLOCKED, *(f"{address}/32" for address in own_addresses())]
    libc.setns(libc.owner_of(_NAMESPACE_FD), libc.CLONE_NEWUSER)
    # In a separate process, because there is no way back to the machine's network.
    pid = os.fork()
    if pid == 0:
        with to_the_end("cannot block the addresses that code must not reach"):
            libc.setns(_NAMESPACE_FD, libc.CLONE_NEWNET)
            _block(blocked)
    if os.waitpid(pid, 0)[1] != 0:
        raise OSError("the network could reach addresses that code must not reach")


def own_addresses(table: Iterable[str] | None = None) -> Sequence[str]:
    """The machine's own IPv4 addresses, except loopback and those of slirp4netns itself."""
    if table is None:
        with open(_FIB_TRIE) as file:
            table = file.readlines()
    return sorted({address for address in _local(table) if not address.startswith(("127.", _OWN_NETWORK))})


def _local(table: Iterable[str]) -> Iterator[str]:
    address = ""
    for line in table:
        words = line.split()
        if words[:1] == ["|--"]:
            address = words[1]
        elif words == ["/32", "host", "LOCAL"]:
            yield address


def _block(networks: Iterable[str]) -> None:
    """Adds routes that reject packets. Code could remove them only with a capability that it does not have."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for network in networks:
            address, _, length = network.partition("/")
            mask = socket.inet_ntoa(struct.pack("!I", (0xFFFFFFFF << (32 - int(length))) & 0xFFFFFFFF))
            places = (_sockaddr(address), _sockaddr("0.0.0.0"), _sockaddr(mask))
            fcntl.ioctl(control, _SIOCADDRT, struct.pack(_ROUTE, 0, *places, _RTF_UP | _RTF_REJECT, *(0,) * 12))


def _sockaddr(address: str) -> bytes:
    return struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))
