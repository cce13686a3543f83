"""A server on another machine, as far as this one can tell: in a network namespace of the test's own."""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

PORT = 8080
ANSWER = "from outside"

_NETWORKS = ("198.51.100", "203.0.113")
"""Set aside for documentation, RFC 5737; the third such may be a test machine's own."""
_SERVE = f"""
import socketserver
class Answer(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall({ANSWER.encode()!r})
class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 4096  # of five, more than a thousand at once would lose some, and the next after them
with Server(("0.0.0.0", {PORT}), Answer) as server:
    print("ready", flush=True)
    server.serve_forever()
"""


@dataclass(frozen=True)
class Outside:
    """The server's address, and the one that this machine has towards it."""

    address: str
    gateway: str
    link_local: str
    """Another of the server's, such as those at which clouds tell a machine its secrets."""


@contextmanager
def outside() -> Iterator[Outside]:
    """Serves `ANSWER` at `PORT` of an address that this machine reaches, and of a link-local one."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("only root, with iproute2, can make a network of its own")
    number, name = _namespace()
    device = f"sbt{number}"
    first, last = _NETWORKS[number // 64], 4 * (number % 64)
    place = Outside(
        address=f"{first}.{last + 2}",
        gateway=f"{first}.{last + 1}",
        # None of those in use: all that are lie in 169.254.169 and 170.
        link_local=f"169.254.{1 + secrets.randbelow(100)}.{number}",
    )
    with ExitStack() as stack:
        stack.callback(_ip, "netns", "delete", name)
        _ip("link", "add", device, "type", "veth", "peer", "name", "outside", "netns", name)
        _ip("address", "add", f"{place.gateway}/30", "dev", device)
        _ip("link", "set", device, "up")
        _ip("-n", name, "address", "add", f"{place.address}/30", "dev", "outside")
        _ip("-n", name, "address", "add", f"{place.link_local}/32", "dev", "outside")
        _ip("-n", name, "link", "set", "outside", "up")
        _ip("-n", name, "route", "add", "default", "via", place.gateway)
        # Goes with the device.
        _ip("route", "add", place.link_local, "via", place.address)
        argv = ["ip", "netns", "exec", name, "/usr/bin/python3", "-c", _SERVE]
        server = stack.enter_context(subprocess.Popen(argv, stdout=subprocess.PIPE))
        stack.callback(server.kill)
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        yield place


def _namespace() -> tuple[int, str]:
    """Makes one, and gives its number and its name. No other test of this machine has that number, nor its addresses."""
    for number in secrets.SystemRandom().sample(range(64 * len(_NETWORKS)), 64 * len(_NETWORKS)):
        name = f"sandbox-test-{number}"
        if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode == 0:
            return number, name
    raise AssertionError("no network namespace could be made; are too many left in /run/netns?")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
