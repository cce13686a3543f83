"""Whether an address leads away from this machine and its networks: the kernel knows which addresses are its own."""

import errno
import ipaddress
import os
import socket
import struct

from ..base.destinations import IPAddress, is_public

_RTM_NEWROUTE, _RTM_GETROUTE, _NLM_F_REQUEST, _RTA_DST = 24, 26, 1, 1
_HEADER = struct.Struct("=IHHII")
_ROUTE = struct.Struct("=BBBBBBBBI")
_OWN = {2, 3, 4, 5}
"""Types of routes: local, broadcast, anycast, multicast. The others lead away, or nowhere."""
_ANSWER = 1 << 13


def is_elsewhere(address: str) -> bool:
    """Whether an address is public, and not an address of this machine, on whichever device."""
    return is_public(address) and not is_own(address)


def is_own(address: str) -> bool:
    """Whether what is sent to an address stays on this machine."""
    ip = ipaddress.ip_address(address)
    try:
        return _route(ip) in _OWN
    except (AttributeError, OSError):  # there is no route, or nobody can be asked for one: only Linux has these sockets
        return _can_be_bound(ip)


def _route(ip: IPAddress) -> int:
    """The type of the route to an address; `OSError` if there is none."""
    attribute = struct.pack("=HH", 4 + len(ip.packed), _RTA_DST) + ip.packed
    route = _ROUTE.pack(_family(ip), ip.max_prefixlen, 0, 0, 0, 0, 0, 0, 0) + attribute
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.send(_HEADER.pack(_HEADER.size + len(route), _RTM_GETROUTE, _NLM_F_REQUEST, 1, 0) + route)
        answer = kernel.recv(_ANSWER)
    if _HEADER.unpack_from(answer)[1] != _RTM_NEWROUTE:
        raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))
    return int(_ROUTE.unpack_from(answer, _HEADER.size)[7])


def _can_be_bound(ip: IPAddress) -> bool:
    with socket.socket(_family(ip), socket.SOCK_DGRAM) as trial:
        try:
            trial.bind((str(ip), 0))
        except OSError:
            return False
    return True


def _family(ip: IPAddress) -> int:
    return socket.AF_INET if ip.version == 4 else socket.AF_INET6
