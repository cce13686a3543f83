"""Which addresses are one client: a machine has one of IPv4, and as many of IPv6 as it likes."""

import pytest

from llm_sandbox_mcp.network.sharing import client_of


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:DB8:0:0:ffff:1:2:3", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", ""),
        ("testclient", "testclient"),
    ],
)
def test_a_client_is_an_address_or_a_network_of_ipv6(address: str, client: str) -> None:
    assert client_of(address) == client
