"""The machine's own addresses, which a sandbox with an open network must not reach."""

from ipaddress import IPv4Address, IPv4Network

from llm_sandbox_mcp.backends.embedded.connecting import blocked_networks, own_networks

TABLE = """\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 198.51.100.0/24 2 0 2
        |-- 198.51.100.0
           /24 link UNICAST
        |-- 198.51.100.7
           /32 host LOCAL
        |-- 198.51.100.255
           /32 link BROADCAST
     |-- 10.4.0.0
        /16 host LOCAL
        /24 link UNICAST
     |-- 127.0.0.1
        /32 host LOCAL
     |-- 203.0.113.9
        /32 universe UNICAST
Local:
  +-- 0.0.0.0/0 3 0 5
     |-- 198.51.100.7
        /32 host LOCAL
Id 100:
  +-- 0.0.0.0/0 1 0 0
     |-- 0.0.0.0
        /0 host LOCAL
"""


def networks(*names: str) -> list[IPv4Network]:
    return [IPv4Network(name) for name in names]


def test_networks_of_any_size_are_found_once_with_broadcasts_and_without_those_of_transparent_proxies() -> None:
    found = own_networks(TABLE.splitlines())
    assert found == networks("10.4.0.0/16", "127.0.0.1/32", "198.51.100.7/32", "198.51.100.255/32")


def test_the_addresses_of_this_machine_are_found() -> None:
    assert any(IPv4Address("127.0.0.1") in network for network in own_networks())


def test_each_address_is_blocked_once_whatever_the_machine_owns() -> None:
    blocked = blocked_networks([])
    owned = networks("192.0.0.192/32", "127.0.0.1/32", "10.0.2.15/32", "10.0.2.255/32", "169.254.1.0/24")
    assert blocked_networks(owned) == blocked
    wider = blocked_networks(networks("10.0.0.0/8", "198.51.100.7/32"))
    assert set(wider) - set(blocked) == set(networks("10.0.0.0/8", "198.51.100.7/32"))
    assert not any(first.overlaps(second) for first in wider for second in wider if first != second)
