"""The machine's own addresses, which a sandbox with an open network must not reach."""

import socket

from llm_sandbox_mcp.backends.embedded.connecting import own_addresses

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
     |-- 10.0.2.15
        /32 host LOCAL
     |-- 127.0.0.1
        /32 host LOCAL
     |-- 203.0.113.9
        /32 universe UNICAST
Local:
  +-- 0.0.0.0/0 3 0 5
     |-- 198.51.100.7
        /32 host LOCAL
"""


def test_each_address_is_found_once_without_loopback_and_the_network_of_slirp4netns() -> None:
    assert own_addresses(TABLE.splitlines()) == ["198.51.100.7"]


def test_a_server_can_listen_on_each_address_of_this_machine() -> None:
    for address in own_addresses():
        with socket.create_server((address, 0)):
            pass
