"""Hosts that a profile names are reached through the server's proxy, on every backend, and nothing else is."""

import hashlib
import json
import os
import re
import socket
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from llm_sandbox_mcp.backends.base import Backend
from llm_sandbox_mcp.backends.containers.settings import Mount
from llm_sandbox_mcp.backends.layout import PATH
from llm_sandbox_mcp.base.errors import StartFailed
from llm_sandbox_mcp.network import proxy as proxies
from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from tests.local_index import LocalIndex, Page, local_index

from .test_pool import filled, opened, said

pytestmark = pytest.mark.anyio

CONTENT = os.urandom(1 << 20)
FETCH = """
import hashlib, http.client, os
def fetch(host, port, path='/file'):
    proxy = http.client.HTTPConnection('127.0.0.1', 3128, timeout=20)
    proxy.set_tunnel(host, port)
    proxy.request('GET', path)
    return proxy.getresponse().read()
def tried(host, port):
    try:
        return len(fetch(host, port))
    except OSError as error:
        return str(error)
"""
KNOCK = "exec 3<>/dev/tcp/127.0.0.1/3128 && echo open; env | grep -ci _proxy"


@pytest.fixture
def site() -> Iterator[LocalIndex]:
    with local_index() as serving:
        serving.pages["/file"] = Page(CONTENT)
        yield serving


@pytest.fixture
def changes(site: LocalIndex) -> dict[str, Mapping[str, object]]:
    return {"network": {"mode": "allow", "domains": (f"127.0.0.1:{site.port}", f"localhost:{site.port}")}}


def logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The lines of the audit log."""
    return [json.loads(record.getMessage()) for record in caplog.records if record.name.endswith(".audit")]


async def test_a_file_is_fetched_from_hosts_that_the_profile_names(service: Service, site: LocalIndex) -> None:
    code = (
        f"{FETCH}\nhost = '127.0.0.1'\n[hashlib.sha256(fetch(h, {site.port})).hexdigest() for h in (host, 'localhost')]"
    )
    ran = await execute(service, code)
    digest = hashlib.sha256(CONTENT).hexdigest()
    assert ran.result == str([digest, digest]), ran
    assert [path for path, _ in site.requests] == ["/file", "/file"]


HOLD = """
import socket
held = []
for number in range(COUNT):
    held.append(socket.create_connection(('127.0.0.1', 3128), 20))
    held[-1].sendall(b'CONNECT 127.0.0.1:PORT HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')
    assert b' 200 ' in held[-1].recv(1000)
for number in range(COUNT):
    held.append(socket.socket())
    held[-1].setblocking(False)
    held[-1].connect_ex(('127.0.0.1', 3128))
"""


@pytest.fixture
def few_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """All sandboxes together have as many connections as one of them can have."""
    limits = SimpleNamespace(RLIMIT_NOFILE=0, getrlimit=lambda _: (64, 64))
    monkeypatch.setattr(proxies, "resource", limits)


async def test_a_session_that_holds_all_connections_makes_no_other_one_wait(
    few_connections: None, service: Service, site: LocalIndex
) -> None:
    greedy = await execute(service, HOLD.replace("COUNT", str(proxies.CONNECTIONS)).replace("PORT", str(site.port)))
    assert greedy.status == "ok", greedy
    other = await execute(service, f"{FETCH}\n[tried('127.0.0.1', {site.port}) for _ in range(3)]")
    assert other.result == str([len(CONTENT)] * 3), other


async def test_everything_else_is_refused_and_logged(
    service: Service, site: LocalIndex, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        other.setblocking(False)
        places = [("127.0.0.1", port), ("127.0.0.2", site.port), ("169.254.169.254", 80), ("api.example", 443)]
        ran = await execute(service, f"{FETCH}\n[tried(*place) for place in {places}]")
        assert str(ran.result).count("failed: 403 ") == len(places), ran
        with pytest.raises(BlockingIOError):
            other.accept()
    lines = logged(caplog)
    assert [(line["event"], line["target"]) for line in lines] == [
        ("network.refused", f"{host}:{number}") for host, number in places
    ]
    assert len({line["sandbox"] for line in lines}) == 1
    assert site.requests == []


async def test_programs_know_the_proxys_address_and_reach_nothing_past_it(service: Service, site: LocalIndex) -> None:
    ran = await execute(
        service,
        "echo $HTTPS_PROXY $no_proxy; for port in $PORT 80; do"
        ' (exec 3<>/dev/tcp/127.0.0.1/$port) 2>/dev/null && echo "reached $port"; done; cat /etc/resolv.conf',
        language="bash",
        variables={"PORT": site.port},
    )
    first, *rest = ran.stdout.text.splitlines()
    assert first == "http://127.0.0.1:3128 localhost,127.0.0.1,::1"
    assert not any("reached" in line for line in rest), rest


async def test_a_warm_sandbox_serves_only_its_own_network(backend: Backend, profile: Profile) -> None:
    closed, granted = profile.limits.policy(), profile.policy()
    async with opened(backend, min=1) as pool:
        await filled(pool, granted)
        lease = await pool.acquire("bash", closed)
        assert not lease.interpreters.languages
        done = await lease.sandbox.run(["bash", "-c", KNOCK], {"PATH": PATH})
        assert (done.stdout, done.exit_code) == (b"0\n", 1)
        lease.release()
        lease = await pool.acquire("bash", granted)
        assert await said(lease, KNOCK) == "open\n0\n"
        lease.release()


class TestWithoutAGrant:
    @pytest.fixture
    def changes(self) -> dict[str, Mapping[str, object]]:
        return {}

    async def test_there_is_no_proxy(self, service: Service) -> None:
        ran = await execute(service, KNOCK, language="bash")
        assert ran.stdout.text == "0\n", ran


class TestOpen:
    @pytest.fixture(params=["embedded", "docker", "podman"])
    def backend_name(self, request: pytest.FixtureRequest) -> str:
        name: str = request.param
        return name

    @pytest.fixture
    def changes(self) -> dict[str, Mapping[str, object]]:
        return {"network": {"mode": "open"}}

    async def test_code_has_a_network_and_no_proxy(self, service: Service) -> None:
        ran = await execute(service, f"cut -f1,2 /proc/net/route; {KNOCK}", language="bash")
        assert re.search(r"^(eth0|tap0)\t00000000$", ran.stdout.text, re.MULTILINE), "no default route"
        assert ran.stdout.text.endswith("\n0\n"), ran


@pytest.mark.usefixtures("elsewhere")
class TestWithoutPerl:
    @pytest.fixture(params=["docker", "podman"])
    def backend_name(self, request: pytest.FixtureRequest) -> str:
        name: str = request.param
        return name

    @pytest.fixture
    def changes(self, site: LocalIndex) -> dict[str, Mapping[str, object]]:
        mounts = (Mount(source="/dev/null", target="/usr/bin/perl"),)
        return {"containers": {"mounts": mounts}, "network": {"mode": "allow", "domains": ("api.example",)}}

    async def test_no_code_runs_where_the_proxy_cannot_be_reached(self, service: Service) -> None:
        with pytest.raises(StartFailed, match=r"nor network by name: .* add Perl"):
            await execute(service, "1")
