"""Which addresses are this machine's own: the kernel's answer, about a separate network with public addresses."""

import errno
import socket
from collections.abc import Iterator

import pytest

from llm_sandbox_mcp.network.elsewhere import is_elsewhere, is_own
from tests.outside import Outside, outside

OWN = ["93.184.216.34", "93.184.216.99", "2606:4700::1111"]
FOREIGN = ["93.184.217.1", "2606:4700::2222"]


@pytest.fixture(scope="module")
def place() -> Iterator[Outside]:
    with outside() as place:
        place.configure("address", "add", "93.184.216.34/24", "dev", "lo")
        place.configure("address", "add", "93.184.216.99/24", "dev", "lo")  # a second one of the same network
        place.configure("address", "add", "2606:4700::1111/128", "dev", "lo")
        place.configure("link", "set", "lo", "up")
        yield place


@pytest.mark.parametrize("address", [*OWN, "93.184.216.255", "8.8.4.4", "2606:4700:1::5"])
def test_what_stays_on_this_machine_is_not_elsewhere(address: str, place: Outside) -> None:
    place.configure("route", "replace", "local", "8.8.4.0/24", "dev", "lo")
    place.configure("-6", "route", "replace", "local", "2606:4700:1::/48", "dev", "lo")
    with place.inside() as call:
        assert not call(is_elsewhere, address)


@pytest.mark.parametrize("address", FOREIGN)
def test_an_address_of_another_machine_is_elsewhere(address: str, place: Outside) -> None:
    with place.inside() as call:
        assert call(is_elsewhere, address)


@pytest.mark.parametrize("address", [*OWN, *FOREIGN])
def test_where_no_routes_can_be_asked_for_what_can_be_bound_is_own(
    address: str, place: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EAFNOSUPPORT, "refused")

    monkeypatch.setattr("llm_sandbox_mcp.network.elsewhere._route", refuse)
    with place.inside() as call:
        assert call(is_own, address) is (address in OWN)


def test_addresses_of_every_device_are_own() -> None:
    assert is_own("127.0.0.1") and is_own("127.5.6.7") and is_own("0.0.0.0")
    assert is_own("::1") or not socket.has_ipv6
