"""A server that looks to this machine like one on another machine: it runs in a separate network namespace."""

import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from llm_sandbox_mcp.backends import libc

PORT = 8080
ANSWER = "from outside"

_NETWORKS = ("198.51.100", "203.0.113")
"""Reserved for documentation by RFC 5737. The third reserved network is left out: a test machine may use it itself."""
_SERVE = f"""
import socketserver
class Answer(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall({ANSWER.encode()!r})
class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 4096  # with the default of 5, a thousand connections at once would lose some
with Server(("0.0.0.0", {PORT}), Answer) as server:
    print("ready", flush=True)
    server.serve_forever()
"""


@dataclass(frozen=True)
class Outside:
    """The address of the server, and the address of this machine on the link to it."""

    address: str
    gateway: str
    link_local: str
    """A second address of the server, like the link-local addresses at which clouds serve secrets of a machine."""
    namespace: str
    """The network namespace that the server runs in: a separate machine, as far as networks go."""
    device: str = "outside"
    """The device of the link, in that namespace."""

    @contextmanager
    def inside(self) -> Iterator[Callable[..., Any]]:
        """A function that calls its first argument, with the rest, in the namespace: sockets made there belong to it."""
        with open(f"/run/netns/{self.namespace}") as place, ThreadPoolExecutor(1) as thread:
            thread.submit(libc.setns, place.fileno(), libc.CLONE_NEWNET).result()
            yield lambda function, *arguments: thread.submit(function, *arguments).result()

    def configure(self, *arguments: str) -> None:
        """Runs `ip` with these arguments in the namespace."""
        _ip("-n", self.namespace, *arguments)


@contextmanager
def outside() -> Iterator[Outside]:
    """Serves `ANSWER` at `PORT` of an address that this machine reaches, and of a link-local one."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("only root, with iproute2, can make a separate network")
    number, name = _namespace()
    device = f"sbt{number}"
    first, last = _NETWORKS[number // 64], 4 * (number % 64)
    place = Outside(
        address=f"{first}.{last + 2}",
        gateway=f"{first}.{last + 1}",
        # Not an address that is in use: all of those are in 169.254.169 and 169.254.170.
        link_local=f"169.254.{1 + secrets.randbelow(100)}.{number}",
        namespace=name,
    )
    with ExitStack() as stack:
        stack.callback(_ip, "netns", "delete", name)
        _ip("link", "add", device, "type", "veth", "peer", "name", place.device, "netns", name)
        _ip("address", "add", f"{place.gateway}/30", "dev", device)
        _ip("link", "set", device, "up")
        place.configure("address", "add", f"{place.address}/30", "dev", place.device)
        place.configure("address", "add", f"{place.link_local}/32", "dev", place.device)
        place.configure("link", "set", place.device, "up")
        place.configure("route", "add", "default", "via", place.gateway)
        # This route disappears with the device.
        _ip("route", "add", place.link_local, "via", place.address)
        argv = ["ip", "netns", "exec", name, "/usr/bin/python3", "-c", _SERVE]
        server = stack.enter_context(subprocess.Popen(argv, stdout=subprocess.PIPE))
        stack.callback(server.kill)
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        yield place


def _namespace() -> tuple[int, str]:
    """Makes a namespace; returns its number and name. No other test on this machine has the number or its addresses."""
    for number in secrets.SystemRandom().sample(range(64 * len(_NETWORKS)), 64 * len(_NETWORKS)):
        name = f"sandbox-test-{number}"
        if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode == 0:
            return number, name
    raise AssertionError("no network namespace could be made; check whether too many are left in /run/netns")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
