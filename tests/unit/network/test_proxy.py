"""The proxy over real sockets: what it forwards, what it refuses, and the log lines for the operator."""

import asyncio
import json
import logging
import os
import resource
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from llm_sandbox_mcp.backends.listening import Listener, listen_on
from llm_sandbox_mcp.base.destinations import Destination
from llm_sandbox_mcp.base.errors import ProfileError
from llm_sandbox_mcp.base.policy import LIMITS, Network, Policy
from llm_sandbox_mcp.host.audit import Audit
from llm_sandbox_mcp.network import connecting, elsewhere, http1
from llm_sandbox_mcp.network import proxy as proxies
from llm_sandbox_mcp.network.proxy import make_proxy
from llm_sandbox_mcp.network.secrets import Secret, read_secrets
from llm_sandbox_mcp.profile.sections import SecretSection
from tests.engines.certificates import ensure
from tests.tls_site import ODD, Site, tls_site

pytestmark = pytest.mark.anyio

SECRET = "Bearer hunter2-hunter2"


@dataclass
class Place:
    """A sandbox that consists only of a loopback."""

    policy: Policy
    id: str = "sandbox-1"
    port: int = 0

    @asynccontextmanager
    async def listen(self, port: int = 0) -> AsyncIterator[Listener]:
        async with listen_on(socket.create_server(("127.0.0.1", 0))) as listener:
            self.port = listener.port
            yield listener


@dataclass
class Client:
    """A client of the proxy."""

    port: int

    async def connect(self) -> anyio.abc.SocketStream:
        return await anyio.connect_tcp("127.0.0.1", self.port)

    async def send(self, raw: bytes) -> bytes:
        """Sends raw bytes; the answer, up to the end of its headers or of the connection."""
        async with await self.connect() as stream:
            await stream.send(raw)
            return await answer(stream)

    async def whole(self, raw: bytes) -> bytes:
        """Sends raw bytes; the whole answer, up to the end of the connection."""
        async with await self.connect() as stream:
            await stream.send(raw)
            return b"".join([data async for data in stream])

    async def tunnel(self, target: str) -> bytes:
        return await self.send(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())


async def answer(stream: anyio.abc.SocketStream) -> bytes:
    got = b""
    while b"\r\n\r\n" not in got:
        try:
            got += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            break
    return got


@asynccontextmanager
async def serving(*domains: str, secrets: tuple[Secret, ...] = ()) -> AsyncIterator[Client]:
    async with serving_many(1, *domains, secrets=secrets) as [client]:
        yield client


@asynccontextmanager
async def serving_many(number: int, *domains: str, secrets: tuple[Secret, ...] = ()) -> AsyncIterator[list[Client]]:
    """A client in each of several sandboxes."""
    network = Network("allow", tuple(map(Destination.parse, domains)))
    limits = dict.fromkeys(LIMITS, 1)
    places = [Place(Policy(**limits, network=network), f"sandbox-{count}") for count in range(1, number + 1)]
    with anyio.fail_after(30):
        proxy = await make_proxy(Audit(), secrets)
        async with AsyncExitStack() as attached:
            for place in places:
                await attached.enter_async_context(proxy.attached(place))  # type: ignore[arg-type]
            yield [Client(place.port) for place in places]


@contextmanager
def echoing() -> Iterator[int]:
    """A port that sends back everything that it receives."""
    listening = socket.create_server(("127.0.0.1", 0))

    def one(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(1 << 16):
                connection.sendall(data)

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def refused(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [json.loads(record.getMessage()) for record in caplog.records if record.name.endswith(".audit")]


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Makes names resolve to these addresses, one list after the other; returns the names that are looked up."""
    asked: list[str] = []

    def getaddrinfo(host: str, port: int, **_: object) -> list[Any]:
        asked.append(host)
        return [(0, 0, 0, "", (address, port)) for address in answers[min(len(asked), len(answers)) - 1]]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


@pytest.mark.parametrize("size", [5, 5_000_000], ids=["small", "large"])
async def test_data_is_forwarded_completely_together_with_its_end(size: int) -> None:
    sent = bytes(range(256)) * (size // 256 + 1)
    with echoing() as port:
        async with serving(f"127.0.0.1:{port}") as client, await client.connect() as stream:
            # Some clients do not wait for the answer.
            await stream.send(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode() + sent[:3])
            got = await answer(stream)
            assert got.startswith(b"HTTP/1.1 200 ")
            got = got.partition(b"\r\n\r\n")[2]

            async def feed() -> None:
                await stream.send(sent[3:])
                await stream.send_eof()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(feed)
                async for data in stream:
                    got += data
            assert got == sent


async def test_connections_with_much_data_leave_descriptors_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    before = pipes()
    sent = bytes(range(256)) * 8000
    with echoing() as port:
        async with serving(f"127.0.0.1:{port}") as client, AsyncExitStack() as held:
            for _ in range(6):
                stream = await held.enter_async_context(await client.connect())
                await stream.send(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                await answer(stream)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(stream.send, sent)
                    got = b""
                    while len(got) < len(sent):
                        got += await stream.receive()
                assert got == sent
            assert 0 < pipes() - before <= 8


def pipes() -> int:
    """The ends of pipes that this process has open."""
    ends = 0
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            ends += os.readlink(f"/proc/self/fd/{descriptor}").startswith("pipe:")
    return ends


@pytest.mark.parametrize(
    "raw",
    [
        b"CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT api.test\0.evil.test:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT api.test:443\0 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT api.test HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT user@api.test:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT 0x7f000001:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT [::ffff:127.0.0.1]:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n",
        b"POST http://api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: api.test\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
        b"CONNECT api.test:443 HTTP/1.1\r\nHost: x\r\nX: \0\r\n\r\n",
        b"CONNECT api.test:443\nX HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT api.test:443 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
        b"CONNECT evil.test:443 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST http://api.test/ HTTP/1.1\r\nHost: api.test\r\nContent-Length: 5\r\n\r\nhello",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * http1.HEAD,
    ],
)
async def test_a_request_that_is_not_granted_gets_403_and_one_line_in_the_log(
    raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving("api.test") as client:
        assert (await client.send(raw)).startswith(b"HTTP/1.1 403 ")
    [line] = refused(caplog)
    assert (line["event"], line["sandbox"]) == ("network.refused", "sandbox-1")
    assert line["reason"]


async def test_requests_in_one_packet_are_judged_one_by_one_until_one_is_granted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def ask(port: int) -> bytes:
        return f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode()

    with echoing() as port:
        async with serving(f"127.0.0.1:{port}") as client, await client.connect() as stream:
            await stream.send(ask(1) + ask(2) + ask(port) + ask(3))
            got = b""
            while not got.endswith(ask(3)):
                got += await stream.receive()
    # Everything after the granted request is data for the host, which the proxy only forwards.
    assert [got.count(b"HTTP/1.1 %d " % status) for status in (403, 200)] == [2, 1]
    assert [line["target"] for line in refused(caplog)] == ["127.0.0.1:1", "127.0.0.1:2"]


async def test_a_name_with_hundreds_of_addresses_is_refused_because_of_one_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving("api.test") as client:
        resolving(monkeypatch, [*(f"93.184.{number}.34" for number in range(256)), "10.0.0.5"])
        assert (await client.tunnel("api.test:443")).startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize(
    "addresses", [["10.0.0.5"], ["127.0.0.1"], ["169.254.169.254"], ["93.184.216.34", "10.0.0.5"], ["::ffff:8.8.8.8"]]
)
async def test_a_name_that_resolves_to_a_private_address_is_refused(
    addresses: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving("api.test") as client:
        resolving(monkeypatch, addresses)
        assert (await client.tunnel("api.test:443")).startswith(b"HTTP/1.1 403 ")
    assert "not public" in refused(caplog)[0]["reason"]


async def test_a_name_of_this_machine_is_refused_also_at_a_public_address(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Tests give this machine no public addresses: its own ones count as such here.
    monkeypatch.setattr(elsewhere, "is_public", lambda address: True)
    with echoing() as port:
        async with serving(f"api.test:{port}", f"named.test:{port}", f"127.1.2.4:{port}") as client:
            resolving(monkeypatch, ["127.1.2.3"])
            assert (await client.tunnel(f"api.test:{port}")).startswith(b"HTTP/1.1 403 ")
            resolving(monkeypatch, ["127.1.2.4"])
            assert not (await client.tunnel(f"named.test:{port}")).startswith(b"HTTP/1.1 403 ")
    assert "is this machine's own" in refused(caplog)[0]["reason"]


async def test_a_name_is_resolved_once_and_the_connection_goes_to_that_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with echoing() as port:
        async with serving(f"api.test:{port}", f"127.0.0.1:{port}") as client:
            asked = resolving(monkeypatch, ["127.0.0.1"], ["10.0.0.5"])
            assert (await client.tunnel(f"API.test.:{port}")).startswith(b"HTTP/1.1 200 ")
    assert asked == ["api.test"]


async def test_a_host_that_cannot_be_reached_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    async with serving(f"127.0.0.1:{port}", "api.test") as client:
        message = await client.tunnel(f"127.0.0.1:{port}")
        assert message.startswith(b"HTTP/1.1 502 127.0.0.1 cannot be reached: Connection refused; ")

        def nobody(*_: object, **__: object) -> None:
            raise socket.gaierror(-2, "Name or service not known")

        monkeypatch.setattr(socket, "getaddrinfo", nobody)
        assert b"502 api.test cannot be resolved; " in await client.tunnel("api.test:443")


async def test_a_resolver_that_does_not_answer_blocks_only_the_threads_of_one_sandbox(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connecting, "SECONDS", 0.05)
    answering, asked = threading.Event(), []

    def getaddrinfo(host: str, *_: object, **__: object) -> list[Any]:
        asked.append(host)
        answering.wait(30)
        return [(0, 0, 0, "", ("10.0.0.5", 443))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    async with serving("*.test") as client:
        try:
            for number in range(20):
                assert (await client.tunnel(f"h{number}.test:443")).startswith(b"HTTP/1.1 504 ")
            assert len(asked) == proxies._LOOKUPS
        finally:
            answering.set()
        # The threads are used again once the resolver answers.
        message = b"504"
        while b"504" in message:
            message = await client.tunnel("later.test:443")
        assert message.startswith(b"HTTP/1.1 403 ")


async def test_a_connection_without_traffic_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxies, "IDLE", 0.05)
    with echoing() as port:
        async with serving(f"127.0.0.1:{port}") as client, await client.connect() as stream:
            await stream.send(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            await answer(stream)
            with pytest.raises(anyio.EndOfStream):
                await stream.receive()


async def test_the_wait_for_a_request_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "WAIT", 0.05)
    async with serving("api.test") as client:
        assert await client.send(b"CONNECT api.test:443 HTTP/1.1\r\nHost: ") == b""


async def test_connections_beyond_the_limit_of_a_sandbox_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxies, "CONNECTIONS", 1)
    with echoing() as port:
        async with serving(f"127.0.0.1:{port}") as client:
            async with await client.connect() as tunnel:
                await tunnel.send(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                assert b" 200 " in await answer(tunnel)
                with anyio.move_on_after(0.05) as waiting:
                    await client.tunnel("other.test:443")
            assert waiting.cancelled_caught
            assert b"403" in await client.tunnel("other.test:443")


@pytest.mark.parametrize("asked", ["", "CONNECT x", "CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n"])
async def test_connections_of_one_sandbox_never_make_another_one_wait(
    asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    monkeypatch.setattr(http1, "WAIT", 3600.0)
    with echoing() as port:
        async with (
            serving_many(3, f"127.0.0.1:{port}") as (greedy, *others),
            AsyncExitStack() as held,
        ):
            for _ in range(2 * proxies.CONNECTIONS):
                stream = await held.enter_async_context(await greedy.connect())
                await stream.send(asked.format(port=port).encode() or b"C")
            for other in others:
                for _ in range(3):
                    assert b" 200 " in await other.tunnel(f"127.0.0.1:{port}")
                    assert b" 403 " in await other.tunnel("other.test:443")


async def test_a_resolver_that_does_not_answer_one_sandbox_still_answers_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proxies, "_THREADS", proxies._LOOKUPS)
    answering, asked = threading.Event(), anyio.Semaphore(0)
    loop = asyncio.get_running_loop()

    def getaddrinfo(host: str, *_: object, **__: object) -> list[Any]:
        if host != "known.test":
            loop.call_soon_threadsafe(asked.release)
            answering.wait(30)
        return [(0, 0, 0, "", ("10.0.0.5", 443))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    async with serving_many(2, "*.test") as (greedy, other), anyio.create_task_group() as tasks:
        for number in range(proxies._LOOKUPS):
            tasks.start_soon(greedy.tunnel, f"h{number}.test:443")
        try:
            for _ in range(proxies._LOOKUPS):
                await asked.acquire()
            assert b" 403 " in await other.tunnel("known.test:443")
            assert b" 403 " in await other.tunnel("known.test:443")
        finally:
            answering.set()


async def test_a_machine_without_threads_is_reported_and_ends_no_sandbox(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_thread(*_: object, **__: object) -> list[Any]:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(socket, "getaddrinfo", no_thread)
    async with serving("api.test") as client:
        for _ in range(2 * proxies._LOOKUPS):
            assert (await client.tunnel("api.test:443")).startswith(b"HTTP/1.1 500 ")
    assert "can't start new thread" in caplog.text


async def test_many_refusals_slow_each_other_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxies, "_FREE", 1)
    monkeypatch.setattr(proxies, "_PENALTY", 60.0)
    async with serving("api.test") as client:
        assert b"403" in await client.tunnel("other.test:443")
        with anyio.move_on_after(0.05) as waiting:
            await client.tunnel("other.test:443")
        assert waiting.cancelled_caught


async def test_the_log_cannot_be_forged(caplog: pytest.LogCaptureFixture) -> None:
    forged = b'a"}\r{"event":"x","target":"\xe2\x80\xa8' + b"y" * 300
    async with serving("api.test") as client:
        await client.send(b"CONNECT " + forged + b" HTTP/1.1\r\n\r\n")
    [record] = [record for record in caplog.records if record.name.endswith(".audit")]
    text = record.getMessage()
    assert text.isprintable() and text.isascii()
    assert json.loads(text)["event"] == "network.refused"


# Secrets.


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with tls_site(monkeypatch) as serving:
        yield serving


def secret(port: int, header: str = "authorization", value: str = SECRET) -> Secret:
    return Secret(Destination("127.0.0.1", port), header, value)


async def test_a_secret_is_added_to_a_request_that_is_forwarded_over_tls(site: Site) -> None:
    secrets = (secret(site.port), secret(site.port, "x-key", "second"))
    async with serving(secrets=secrets) as client:
        host = f"127.0.0.1:{site.port}"
        head = f"POST http://{host}/path?q=1 HTTP/1.1\r\nHost: {host}\r\nAuthorization: mine\r\nAUTHORIZATION: too\r\n"
        head += "Proxy-Authorization: x\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nX-Own: 2\r\n"
        for framing, body in (
            ("Content-Length: 5\r\n\r\n", b"hello"),
            ("Transfer-Encoding: chunked\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n"),
        ):
            got = await client.send((head + framing).encode() + body)
            assert got.startswith(b"HTTP/1.1 200 ")
            assert b"hunter2" not in got
    for method, path, headers, body in site.asked:
        assert (method, path, body) == ("POST", "/path?q=1", b"hello")
        assert (headers["authorization"], headers["x-key"], headers["host"]) == (SECRET, "second", host)
        assert headers["x-own"] == "2"
        assert not {"x-hop", "proxy-authorization", "connection"} & set(headers)
    assert len(site.asked) == 2


async def test_a_request_with_two_lengths_is_forwarded_with_one(site: Site) -> None:
    async with serving(secrets=(secret(site.port),)) as client:
        head = f"POST http://127.0.0.1:{site.port}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 30\r\n"
        head += "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        got = await client.send(head.encode())
    assert got.startswith(b"HTTP/1.1 200 ")
    [(_, _, headers, body)] = site.asked
    assert body == b"hello"
    assert "content-length" not in headers


@pytest.mark.parametrize("method", ["TRACE", "TRACK", "trace", "DEBUG", "CUSTOM"])
async def test_a_method_that_could_echo_the_secret_is_refused(
    site: Site, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(secrets=(secret(site.port),)) as client:
        got = await client.send(f"{method} http://127.0.0.1:{site.port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert got.startswith(b"HTTP/1.1 403 ")
    assert site.asked == []
    assert got.partition(b"\r\n\r\n")[2] == f"'{method}' is not served here; use GET or POST\n".encode()
    assert refused(caplog)[0]["method"] == method


async def test_a_header_from_the_code_cannot_replace_the_header_with_the_secret(site: Site) -> None:
    async with serving(secrets=(secret(site.port, "x-api-key"),)) as client:
        head = f"GET http://127.0.0.1:{site.port}/ HTTP/1.1\r\nHost: x\r\nX_Api_Key: mine\r\nX-API_KEY: too\r\n\r\n"
        await client.send(head.encode())
    [(_, _, headers, _)] = site.asked
    assert {name: value for name, value in headers.items() if "key" in name} == {"x-api-key": SECRET}


async def test_a_redirect_is_left_to_the_code(site: Site) -> None:
    async with serving(secrets=(secret(site.port),)) as client:
        host = f"127.0.0.1:{site.port}"
        got = await client.send(f"GET http://{host}/elsewhere HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert got.startswith(b"HTTP/1.1 302 ")
    assert b"location: http://other.test/" in got.lower()
    assert len(site.asked) == 1


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
async def test_an_odd_answer_ends_at_most_its_own_connection(
    site: Site, odd: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    site.raw["/odd"] = odd
    ask = f"GET http://127.0.0.1:{site.port}/{{}} HTTP/1.1\r\nHost: x\r\n\r\n"
    async with serving(secrets=(secret(site.port),)) as client, await client.connect() as other:
        await client.send(ask.format("odd").encode())
        await other.send(ask.format("").encode())
        assert (await answer(other)).startswith(b"HTTP/1.1 200 ")
        assert (await client.send(ask.format("").encode())).startswith(b"HTTP/1.1 200 ")
    assert len(site.asked) == 3
    assert caplog.text == ""


async def test_headers_pass_as_they_are_or_the_reason_takes_their_place(site: Site) -> None:
    async with serving(secrets=(secret(site.port),)) as client:
        answers = {}
        for path, name in enumerate(("a value beyond ASCII", "a status below those of answers", "a length and chunks")):
            site.raw[f"/{path}"] = ODD[name]
            ask = f"GET http://127.0.0.1:{site.port}/{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            answers[name] = await client.whole(ask.encode())
    assert b"\r\nx-odd: caf\xe9 \xff\r\n" in answers["a value beyond ASCII"]
    assert answers["a status below those of answers"].startswith(b"HTTP/1.1 502 ")
    assert answers["a length and chunks"].endswith(b"\r\n\r\n2\r\nok\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    "target", ["http://127.0.0.1:{other}/", "http://127.0.0.2:{port}/", "https://127.0.0.1:{port}/"]
)
async def test_a_secret_is_sent_to_no_other_host_or_port(
    site: Site, target: str, caplog: pytest.LogCaptureFixture
) -> None:
    place = target.format(port=site.port, other=site.port + 1)
    caplog.set_level(logging.DEBUG)
    async with serving(secrets=(secret(site.port),)) as client:
        got = await client.send(f"GET {place} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        # A secret does not allow a tunnel either, in which code could send its own headers.
        tunnel = await client.tunnel(f"127.0.0.1:{site.port}")
    assert got.startswith(b"HTTP/1.1 403 ")
    assert tunnel.startswith(b"HTTP/1.1 403 ")
    assert site.asked == []
    assert "hunter2" not in caplog.text


async def test_a_name_with_a_secret_is_resolved_once_and_must_not_lead_to_a_private_address(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = Secret(Destination("models.test", site.port), "authorization", SECRET)
    ask = f"GET http://models.test:{site.port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    async with serving(secrets=(named,)) as client:
        resolving(monkeypatch, ["127.0.0.1"])
        assert (await client.send(ask)).startswith(b"HTTP/1.1 403 'models.test' is at an address that is not public")
    async with serving(f"127.0.0.1:{site.port}", secrets=(named,)) as client:
        asked = resolving(monkeypatch, ["127.0.0.1"], ["10.0.0.5"])
        # The server at this address has another name, so it receives nothing.
        assert (await client.send(ask)).startswith(b"HTTP/1.1 502 models.test failed at TLS: ")
    assert asked == ["models.test"]
    assert site.asked == []


async def test_two_secrets_of_one_host_each_go_only_to_their_own_port(site: Site) -> None:
    async with serving(secrets=(secret(site.port + 1, "x-other", "other"), secret(site.port))) as client:
        await client.send(f"GET http://127.0.0.1:{site.port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    [(_, _, headers, _)] = site.asked
    assert headers["authorization"] == SECRET
    assert "x-other" not in headers


async def test_a_secret_is_never_sent_to_a_server_without_a_valid_certificate(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(ensure("another").server.ca))
    caplog.set_level(logging.DEBUG)
    async with serving(secrets=(secret(site.port),)) as client:
        got = await client.send(f"GET http://127.0.0.1:{site.port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert got.startswith(b"HTTP/1.1 502 127.0.0.1 failed at TLS: ")
    assert site.asked == []
    assert "hunter2" not in caplog.text


def test_the_values_of_secrets_come_from_files_or_the_environment_and_are_never_shown(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{SECRET}\n")
    sections = [
        SecretSection(domain="api.test", header="Authorization", value_file=str(tmp_path / "token")),
        SecretSection(domain="api.test:8443", header="X-Key", value_env="KEY"),
    ]
    found = read_secrets(sections, {"KEY": "other-value"})
    assert [(str(one.destination), one.header, one.value) for one in found] == [
        ("api.test:443", "authorization", SECRET),
        ("api.test:8443", "x-key", "other-value"),
    ]
    assert "hunter2" not in repr(found)


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "has no value"), (b"a\r\nX: b", "no header"), (b"\xff", "no header")]
)
def test_an_invalid_secret_is_an_error_without_its_value(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "token").write_bytes(content)
    section = SecretSection(domain="api.test", header="X-Key", value_file=str(tmp_path / "token"))
    with pytest.raises(ProfileError, match=rf"^network\.secrets\.0\.value_file: .* {message}.*; ") as error:
        read_secrets([section], {})
    assert "X: b" not in str(error.value)
    with pytest.raises(ProfileError, match=r"value_env: KEY has no value"):
        read_secrets([SecretSection(domain="api.test", header="X-Key", value_env="KEY")], {})
    with pytest.raises(ProfileError, match=r"cannot be read: No such file"):
        read_secrets([SecretSection(domain="api.test", header="X-Key", value_file="/nonexistent")], {})
