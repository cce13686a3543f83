"""What an operator's destinations grant, which targets code can request, and which addresses are public."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.base.destinations import Destination, grants, is_public, opens, read_authority, read_host

PUBLIC, PRIVATE = "93.184.216.34", "10.0.0.5"


def granted(domains: list[str], target: str, *addresses: str) -> bool:
    """Whether code is allowed to connect to a target that resolves to these addresses."""
    destinations = [Destination.parse(text) for text in domains]
    try:
        host, port = read_authority(target)
    except ValueError:
        return False
    found = addresses or ((PUBLIC,) if isinstance(host, str) else (str(host),))
    return grants(destinations, host, port) and all(opens(destinations, host, one, port) for one in found)


@pytest.mark.parametrize(
    ("domain", "target", "allowed"),
    [
        ("api.example", "api.example:443", True),
        ("api.example", "API.Example.:443", True),
        ("API.example.", "api.example:443", True),
        ("api.example", "api.example:80", False),
        ("api.example:8443", "api.example:8443", True),
        ("api.example:8443", "api.example:443", False),
        ("api.example", "other.example:443", False),
        ("api.example", "www.api.example:443", False),
        ("api.example", "notapi.example:443", False),
        ("api.example", "api.example.evil.example:443", False),
        ("*.example", "api.example:443", True),
        ("*.example", "a.b.example:443", True),
        ("*.example", "example:443", False),
        ("*.example", "evilexample:443", False),
        ("bücher.example", "xn--bcher-kva.example:443", True),
        ("10.0.0.5:5432", "10.0.0.5:5432", True),
        ("10.0.0.5:5432", "10.0.0.5:443", False),
        ("10.0.0.5:5432", "10.0.0.6:5432", False),
        ("10.0.0.0/8:5432", "10.200.0.1:5432", True),
        ("10.0.0.0/8:5432", "11.0.0.1:5432", False),
        ("[fd00::1]:443", "[fd00:0:0::1]:443", True),
        ("fd00::/8", "[fd12::1]:443", True),
        ("[fd00::/8]:8443", "[fd12::1]:8443", True),
        ("[::ffff:10.0.0.5]:443", "[::ffff:a00:5]:443", True),
        ("[::ffff:0:0/96]:443", "[::ffff:10.0.0.5]:443", False),
        ("10.0.0.0/8", "[::ffff:10.0.0.5]:443", False),
        ("0.0.0.0/0", "2130706433:443", False),
        ("0.0.0.0/0", "0x7f000001:443", False),
        ("0.0.0.0/0", "0177.0.0.1:443", False),
        ("0.0.0.0/0", "127.1:443", False),
        ("0.0.0.0/0", "127.0.0.1.:443", False),
        ("93.184.216.34", "93.184.216.34:443", True),
        ("api.example", "93.184.216.34:443", False),
        ("api.example", "user@api.example:443", False),
        ("api.example", "api.example:0443 ", False),
        ("api.example", "api.example", False),
        ("api.example", "api.example:", False),
        ("api.example", "api.example:443:443", False),
        ("api.example", "api.example:٤٤٣", False),
        ("api.example", "api.example\0.evil.example:443", False),
        ("*.example", "evil.test\0.example:443", False),
        ("*.example", "evil.test%00.example:443", False),
        ("*.example", "evil.test#.example:443", False),
        ("*.example", "evil.test/.example:443", False),
        ("*.example", "evil.test\\.example:443", False),
        ("*.example", "a b.example:443", False),
        ("*.example", "*.example:443", False),
        ("*.example", ".example:443", False),
        ("*.example", "a..example:443", False),
        ("[fe80::1]:443", "[fe80::1%eth0]:443", False),
    ],
)
def test_only_what_is_named_is_granted(domain: str, target: str, allowed: bool) -> None:
    assert granted([domain], target) is allowed


@pytest.mark.parametrize(
    ("domains", "target", "addresses", "allowed"),
    [
        (["api.example"], "api.example:443", (PUBLIC,), True),
        (["api.example"], "api.example:443", (PRIVATE,), False),
        (["api.example"], "api.example:443", (PUBLIC, PRIVATE), False),
        (["api.example"], "api.example:443", ("fe80::1%eth0",), False),
        (["api.example"], "api.example:443", ("::ffff:93.184.216.34",), False),
        (["api.example", "10.0.0.5"], "api.example:443", (PRIVATE,), True),
        (["api.example", "10.0.0.5:80"], "api.example:443", (PRIVATE,), False),
        (["api.example", "10.0.0.0/8"], "api.example:443", (PUBLIC, PRIVATE), True),
        (["localhost:8000"], "localhost:8000", ("127.0.0.1", "::1"), True),
        (["localhost:8000"], "localhost:8000", (PRIVATE,), False),
        (["localhost:8000"], "127.0.0.1:8000", (), False),
        (["127.0.0.1:8000"], "localhost:8000", ("127.0.0.1",), False),
        (["*.localhost:8000"], "a.localhost:8000", ("127.0.0.1",), False),
    ],
)
def test_every_address_of_a_name_has_to_be_public_or_named(
    domains: list[str], target: str, addresses: tuple[str, ...], allowed: bool
) -> None:
    assert granted(domains, target, *addresses) is allowed


def test_nothing_is_granted_where_nothing_is_named() -> None:
    assert not granted([], "api.example:443")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*",
        "*.",
        "api.example:0",
        "api.example:65536",
        "https://api.example",
        "api.example/path",
        "a b",
        "1.2.3",
        "10.0.0.5/8",
        "a.*.example",
        "user@api.example",
        "api.example:x",
        "\x00",
        "[api.example]:443",
        "0x7f.1",
        "-.example",
    ],
)
def test_text_that_is_not_a_destination_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Destination.parse(text)


@pytest.mark.parametrize("text", ["api.example:443", "*.example:8443", "10.0.0.0/8:5432", "[fd00::/8]:443", "[::1]:80"])
def test_a_destination_is_printed_as_it_was_written(text: str) -> None:
    assert str(Destination.parse(text)) == text


@pytest.mark.parametrize(
    ("address", "public"),
    [
        (PUBLIC, True),
        ("2606:4700::1111", True),
        ("0.0.0.0", False),
        ("127.0.0.1", False),
        ("169.254.169.254", False),
        ("172.16.0.1", False),
        ("192.168.0.1", False),
        ("100.64.0.1", False),
        ("192.0.0.192", False),
        ("198.18.0.1", False),
        ("224.0.0.1", False),
        ("240.0.0.1", False),
        ("255.255.255.255", False),
        ("::", False),
        ("::1", False),
        ("::127.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("::ffff:93.184.216.34", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("64:ff9b:1::a00:1", False),
        ("2002:a00:1::1", False),
        ("2001::a00:1", False),
        ("fe80::1%eth0", False),
        ("fec0::1", False),
        ("fd00::1", False),
        ("ff02::1", False),
    ],
)
def test_public_addresses_are_distinguished_from_all_others(address: str, public: bool) -> None:
    assert is_public(address) is public


SPECIAL = [
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
    *("192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
    *("224.0.0.0/4", "240.0.0.0/4", "168.63.129.16/32"),
    *("::/128", "::1/128", "::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64"),
    *("2001::/32", "2001:2::/48", "2001:10::/28", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16", "fc00::/7"),
    *("fe80::/10", "fec0::/10", "ff00::/8", "::/8", "4000::/2", "8000::/1"),
]
"""All ranges that IANA's registries of special addresses list as not globally reachable, and unassigned ranges."""


@pytest.mark.parametrize("network", SPECIAL)
def test_the_ends_of_a_special_range_are_not_public(network: str) -> None:
    held = ipaddress.ip_network(network)
    assert [is_public(str(held[at])) for at in (0, -1)] == [False, False]


@given(st.sampled_from(SPECIAL), st.data())
def test_no_address_of_a_special_range_is_public(network: str, data: st.DataObject) -> None:
    held = ipaddress.ip_network(network)
    assert not is_public(str(held[data.draw(st.integers(0, held.num_addresses - 1))]))


@given(st.ip_addresses(v=4), st.sampled_from([0x5EFE, 0x200_5EFE]))
def test_an_ipv4_address_at_the_end_of_an_ipv6_address_is_never_public(ip: ipaddress.IPv4Address, mark: int) -> None:
    isatap = ipaddress.IPv6Address((0x2606_4700 << 96) + (mark << 32) + int(ip))
    assert not is_public(str(isatap))


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_in_an_ipv6_form_is_never_public(ip: ipaddress.IPv4Address) -> None:
    number = int(ip)
    for base, shift in (("::ffff:0:0", 0), ("::", 0), ("64:ff9b::", 0), ("2002::", 80), ("2001::", 0)):
        carried = ipaddress.IPv6Address(int(ipaddress.IPv6Address(base)) + (number << shift))
        assert not is_public(str(carried))


@given(st.text(max_size=30), st.sampled_from(["", ":443", ":80"]))
def test_an_accepted_host_has_no_character_that_other_software_could_read_differently(text: str, port: str) -> None:
    try:
        host = read_host(text + port)
    except ValueError:
        return
    assert isinstance(host, ipaddress.IPv4Address | ipaddress.IPv6Address) or (
        set(host) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_.") and host == host.strip(".")
    )


@given(
    st.lists(st.sampled_from(["a", "example", ".", "*.", "10.0.0.0/8", ":", "443", "[", "]", "::1", "é"]), max_size=6)
)
def test_an_accepted_destination_is_the_same_when_it_is_printed_and_parsed_again(parts: list[str]) -> None:
    try:
        found = Destination.parse("".join(parts))
    except ValueError:
        return
    assert Destination.parse(str(found)) == found
