"""Package indexes behind the proxy of a company, and what the proxy is never asked for."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anyio
import httpcore2
import pytest

from llm_sandbox_mcp.libraries.installed.index_client import (
    FAILURES,
    PrivateAddress,
    Proxies,
    UnusableProxy,
    describe,
    open_client,
    read_certificates,
)
from llm_sandbox_mcp.libraries.installed.indexes import index_problem

pytestmark = pytest.mark.anyio

INDEX = "http://index.company.example/simple"
"""No machine of this name exists, so only the proxy can answer for it."""


class Proxy:
    """Answers for every host, and records the requests with their credentials."""

    def __init__(self, port: int) -> None:
        self.environ = {"http_proxy": f"http://me:secret@127.0.0.1:{port}", "HTTPS_PROXY": f"127.0.0.1:{port}"}
        self.asked: list[tuple[str, str]] = []
        self.redirects: dict[str, str] = {}


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append((self.path, self.headers.get("proxy-authorization", "")))
            location = found.redirects.get(self.path)
            self.send_response(302 if location else 200)
            if location:
                self.send_header("location", location)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def do_CONNECT(self) -> None:
            found.asked.append((self.path, self.headers.get("proxy-authorization", "")))
            self.send_error(407, "Who are you?")

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Proxy(server.server_port)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        server.shutdown()
        thread.join()


async def get(upstream: str, address: str, environ: dict[str, str]) -> str:
    with anyio.fail_after(60):
        async with open_client(upstream, await read_certificates(), environ) as client:
            return (await client.get(address)).text


async def test_an_index_is_reached_through_the_proxy_with_its_credentials(proxy: Proxy) -> None:
    assert await get(INDEX, f"{INDEX}/tiny/", proxy.environ) == "ok"
    assert proxy.asked == [(f"{INDEX}/tiny/", "Basic bWU6c2VjcmV0")]
    assert await index_problem(INDEX, await read_certificates(), proxy.environ, folders=False) is None


async def test_a_proxy_that_refuses_is_the_reason(proxy: Proxy) -> None:
    https = INDEX.replace("http:", "https:")
    with pytest.raises(FAILURES) as raised:
        await get(https, https, proxy.environ)
    assert describe(raised.value) == "cannot be reached through the proxy: 407 Who are you?"
    assert proxy.asked == [("index.company.example:443", "")]


@pytest.mark.parametrize("host", ["10.0.0.1", "169.254.169.254", "[fd00::1]", "2130706433"])
async def test_the_proxy_is_not_asked_for_private_addresses(proxy: Proxy, host: str) -> None:
    with pytest.raises((PrivateAddress, httpcore2.ConnectError)):
        await get(INDEX, f"http://{host}/latest/meta-data", proxy.environ)
    assert proxy.asked == []
    proxy.redirects[f"{INDEX}/tiny/"] = f"http://{host}/latest/meta-data"
    with pytest.raises((PrivateAddress, httpcore2.ConnectError)):
        await get(INDEX, f"{INDEX}/tiny/", proxy.environ)
    assert [address for address, _ in proxy.asked] == [f"{INDEX}/tiny/"]


async def test_the_index_itself_can_be_at_a_private_address_behind_the_proxy(proxy: Proxy) -> None:
    assert await get("http://10.0.0.1/simple", "http://10.0.0.1/simple/tiny/", proxy.environ) == "ok"


def test_each_scheme_has_its_proxy_and_lower_case_has_priority() -> None:
    environ = {"HTTP_PROXY": "http://upper:1", "http_proxy": "http://lower:2", "all_proxy": "http://all:3"}
    proxies = Proxies(environ)
    for scheme, port in (("http", 2), ("https", 3)):
        proxy = proxies.to(scheme, "a.example")
        assert proxy is not None and proxy.url.port == port
    assert Proxies({}).to("https", "a.example") is None


@pytest.mark.parametrize(
    ("entry", "host", "direct"),
    [
        ("a.example", "a.example", True),
        ("a.example", "b.a.example", True),
        (".a.example", "b.a.example", True),
        ("*.a.example", "b.a.example", True),
        ("a.example:443", "A.example", True),
        ("other, A.EXAMPLE ,", "a.example", True),
        ("*", "b.example", True),
        ("a.example", "ba.example", False),
        ("", "a.example", False),
        (",", "a.example", False),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("", "127.0.0.1", True),
        ("", "localhost", True),
        ("", "::1", True),
    ],
)
def test_hosts_that_need_no_proxy(entry: str, host: str, direct: bool) -> None:
    proxies = Proxies({"https_proxy": "http://proxy:3128", "NO_PROXY": entry})
    assert (proxies.to("https", host) is None) == direct


@pytest.mark.parametrize("address", ["socks5://proxy:1080", "ftp://proxy", "http://", "file:///x"])
def test_another_kind_of_proxy_is_refused_and_not_passed_over(address: str) -> None:
    with pytest.raises(UnusableProxy, match="is behind the proxy of https_proxy, which "):
        Proxies({"https_proxy": address}).to("https", "a.example")
