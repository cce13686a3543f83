"""Where code may connect to: the hosts that operators name, the hosts that code requests, public addresses. Pure."""

import ipaddress
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

HTTPS = 443
LOCALHOST = "localhost"
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")
_NUMBER = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)")
"""A last label that makes libraries read a name as an IPv4 address, in one of its unusual forms."""
_AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*):([0-9]{1,5})", re.ASCII)
_CARRIERS = tuple(
    map(ipaddress.ip_network, ("::ffff:0:0/96", "::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48"))
) + tuple(map(ipaddress.ip_network, ("2002::/16", "2001::/32")))
"""IPv6 ranges whose addresses contain an IPv4 address: mapped, compatible, translated, NAT64, 6to4, Teredo."""
_ISATAP = 0x5EFE
"""Precedes an IPv4 address at the end of an IPv6 address, in any range; one bit of it marks a globally unique one."""
_UNIQUE_BIT = 1 << 25

_SPECIAL = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20", "168.63.129.16/32")))
"""For protocols, relays and documentation: not every Python knows them. The last is one cloud's host."""

_LOOPBACK = tuple(map(ipaddress.ip_network, ("127.0.0.0/8", "::1")))


def read_host(text: str) -> str | IPAddress:
    """A host as code requests it: an address, IPv6 in brackets, or a name, returned in lower case without a last dot.

    `ValueError` for anything else, such as octal or hexadecimal forms of addresses, zones, user names, NUL or spaces.
    """
    if text.startswith("["):
        return ipaddress.IPv6Address(_plain(text[1:-1]))
    try:
        return ipaddress.IPv4Address(text)
    except ValueError:
        name = text.lower().removesuffix(".")
    if not _NAME.fullmatch(name) or _NUMBER.fullmatch(name.rpartition(".")[2]):
        raise ValueError("is not a host")
    return name


def read_authority(text: str) -> tuple[str | IPAddress, int]:
    """A host and a port, separated by a colon; `ValueError` for anything else."""
    match = _AUTHORITY.fullmatch(text)
    if match is None or not 0 < int(match[2]) < 1 << 16:
        raise ValueError("is not a host with a port")
    return read_host(match[1]), int(match[2])


def is_public(address: str) -> bool:
    """Whether an address belongs to the public internet and does not contain another address."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    special = any(ip in network for network in _SPECIAL)
    return ip.is_global and not (special or ip.is_multicast or ip.is_reserved or _carries(ip) or _site_local(ip))


def _carries(ip: IPAddress) -> bool:
    isatap = ip.version == 6 and (int(ip) >> 32) & 0xFFFFFFFF & ~_UNIQUE_BIT == _ISATAP
    return isatap or any(ip in network for network in _CARRIERS)


def _site_local(ip: IPAddress) -> bool:
    return isinstance(ip, ipaddress.IPv6Address) and ip.is_site_local


def _plain(text: str) -> str:
    if "%" in text:
        raise ValueError("has a zone")
    return text


@dataclass(frozen=True, slots=True)
class Destination:
    """A host or a group of hosts, and the one port there that code may connect to."""

    host: str
    """A name; `*.` and a name for all names below it; an address or a range of addresses."""
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `name`, `*.name`, `address` or `range`, each with or without a port; the default port is 443.

        IPv6 addresses with a port are in brackets. `ValueError` with the reason, which does not repeat the text.
        """
        host, port = text, HTTPS
        if _network(text) is None and (match := re.fullmatch(r"(.*?):([0-9]{1,5})", text, re.ASCII | re.DOTALL)):
            host, port = match[1], int(match[2])
            if not 0 < port < 1 << 16:
                raise ValueError("has a port that is not between 1 and 65535")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if (network := _network(bare)) is not None:
            return cls(str(network) if network.num_addresses > 1 else str(network.network_address), port)
        wildcard, name = ("*.", host[2:]) if host.startswith("*.") else ("", host)
        try:
            read = read_host(_ascii(name))
        except ValueError:
            raise ValueError(
                'must be a name such as "api.example", "*.example" or "api.example:8443", '
                'or an address or range such as "10.0.0.5:5432" or "[fd00::/8]:443"'
            ) from None
        return cls(f"{wildcard}{read}", port)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def network(self) -> IPNetwork | None:
        """The range of addresses; None if the host is a name."""
        return _network(self.host)

    def names(self, host: str) -> bool:
        """Whether a host name is this name; for a wildcard, whether it is below the name."""
        if self.host.startswith("*."):
            return host.endswith(self.host[1:])
        return host == self.host

    def holds(self, ip: IPAddress) -> bool:
        """Whether the address is in the range; an address that contains another one must be named itself."""
        network = self.network
        return network is not None and ip in network and (network.num_addresses == 1 or not _carries(ip))


def _network(text: str) -> IPNetwork | None:
    try:
        return ipaddress.ip_network(_plain(text))
    except ValueError:
        return None


def _ascii(name: str) -> str:
    if name.isascii():
        return name
    # Only profiles contain names in other scripts; programs request the ASCII form that DNS uses.
    import idna

    try:
        return idna.encode(name, uts46=True).decode()
    except idna.IDNAError as error:
        raise ValueError("is not a host") from error


def grants(destinations: Sequence[Destination], host: str | IPAddress, port: int) -> bool:
    """Whether a host may be requested; `opens` decides about the addresses that it resolves to."""
    at = [destination for destination in destinations if destination.port == port]
    if isinstance(host, str):
        return any(destination.names(host) for destination in at)
    return any(destination.holds(host) for destination in at)


def opens(
    destinations: Sequence[Destination],
    host: str | IPAddress,
    address: str,
    port: int,
    unnamed: Callable[[str], bool] = is_public,
) -> bool:
    """Whether a granted host may be connected to at this address, which is named itself, or need not be.

    Naming `localhost` names its addresses, too.
    """
    if "%" in address:
        return False
    ip = ipaddress.ip_address(address)
    if host == LOCALHOST and any(ip in network for network in _LOOPBACK):
        return True
    named = any(destination.holds(ip) for destination in destinations if destination.port == port)
    return named or (isinstance(host, str) and unnamed(address))
