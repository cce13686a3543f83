"""Where code may connect to: what operators name, what code asks for, and which addresses are public. Pure."""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

HTTPS = 443
LOCALHOST = "localhost"
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")
_NUMBER = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)")
"""A last label with which libraries take a name for an address of IPv4, in any of its odd forms."""
_AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*):([0-9]{1,5})", re.ASCII)
_CARRIERS = tuple(
    map(ipaddress.ip_network, ("::ffff:0:0/96", "::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48"))
) + tuple(map(ipaddress.ip_network, ("2002::/16", "2001::/32")))
"""Ranges of IPv6 with an address of IPv4 inside: mapped, compatible, translated, NAT64, 6to4, Teredo."""
_ISATAP = 0x5EFE
"""What precedes an address of IPv4 at the end of one of IPv6, in any range; a bit of it says whether that is unique."""
_UNIQUE = 1 << 25

_SPECIAL = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20", "168.63.129.16/32")))
"""Protocols', relays', documentation's, which not every Python knows; and where one cloud's machines ask their host."""

_LOOPBACK = tuple(map(ipaddress.ip_network, ("127.0.0.0/8", "::1")))


def read_host(text: str) -> str | IPAddress:
    """A host as code asks for it: an address, one of IPv6 in brackets, or a name in lower case without a last dot.

    `ValueError` for anything else, such as octal or hexadecimal forms of addresses, zones, user names, NUL or spaces.
    """
    if text.startswith("["):
        return ipaddress.IPv6Address(_plain(text[1:-1]))
    try:
        return ipaddress.IPv4Address(text)
    except ValueError:
        name = text.lower().removesuffix(".")
    if not _NAME.fullmatch(name) or _NUMBER.fullmatch(name.rpartition(".")[2]):
        raise ValueError("is no host")
    return name


def read_authority(text: str) -> tuple[str | IPAddress, int]:
    """A host and a port, divided by a colon; `ValueError` for anything else."""
    match = _AUTHORITY.fullmatch(text)
    if match is None or not 0 < int(match[2]) < 1 << 16:
        raise ValueError("is no host with a port")
    return read_host(match[1]), int(match[2])


def is_public(address: str) -> bool:
    """Whether an address is one of the public internet, and does not carry another one inside."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    special = any(ip in network for network in _SPECIAL)
    return ip.is_global and not (special or ip.is_multicast or ip.is_reserved or _carries(ip) or _site_local(ip))


def _carries(ip: IPAddress) -> bool:
    isatap = ip.version == 6 and (int(ip) >> 32) & 0xFFFFFFFF & ~_UNIQUE == _ISATAP
    return isatap or any(ip in network for network in _CARRIERS)


def _site_local(ip: IPAddress) -> bool:
    return isinstance(ip, ipaddress.IPv6Address) and ip.is_site_local


def _plain(text: str) -> str:
    if "%" in text:
        raise ValueError("has a zone")
    return text


@dataclass(frozen=True, slots=True)
class Destination:
    """A host, or a group of hosts, and the one port there that code may connect to."""

    host: str
    """A name; `*.` and a name for all below it; an address or a range of addresses."""
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `name`, `*.name`, `address` or `range`, each with a port or without one, which is 443 then.

        Addresses of IPv6 with a port are in brackets. `ValueError` with the reason, which does not repeat the text.
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
        """The range of addresses, where it is no name."""
        return _network(self.host)

    def names(self, host: str) -> bool:
        """Whether it is this name's."""
        if self.host.startswith("*."):
            return host.endswith(self.host[1:])
        return host == self.host

    def holds(self, ip: IPAddress) -> bool:
        """Whether the address is in its range; one that carries another inside has to be named itself."""
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
    # Only profiles have names in other letters; programs ask for them as they stand in DNS.
    import idna

    try:
        return idna.encode(name, uts46=True).decode()
    except idna.IDNAError as error:
        raise ValueError("is no host") from error


def grants(destinations: Sequence[Destination], host: str | IPAddress, port: int) -> bool:
    """Whether a host may be asked for; whether what it resolves to may be connected to is for `opens` to say."""
    at = [destination for destination in destinations if destination.port == port]
    if isinstance(host, str):
        return any(destination.names(host) for destination in at)
    return any(destination.holds(host) for destination in at)


def opens(destinations: Sequence[Destination], host: str | IPAddress, address: str, port: int) -> bool:
    """Whether a host that is granted may be connected to at this address: a public one, or one that is named itself.

    `localhost` is named with its addresses.
    """
    if "%" in address:
        return False
    ip = ipaddress.ip_address(address)
    if host == LOCALHOST and any(ip in network for network in _LOOPBACK):
        return True
    named = any(destination.holds(ip) for destination in destinations if destination.port == port)
    return named or (isinstance(host, str) and is_public(address))
