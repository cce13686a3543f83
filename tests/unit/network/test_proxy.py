"""The proxy over real sockets: what it passes on, what it refuses, and what the operator reads about that."""

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

from llm_sandbox_mcp.audit import Audit
from llm_sandbox_mcp.backends.listening import Listener, listen_on
from llm_sandbox_mcp.destinations import Destination
from llm_sandbox_mcp.errors import ProfileError
from llm_sandbox_mcp.network import connecting, http1
from llm_sandbox_mcp.network import proxy as proxies
from llm_sandbox_mcp.network.proxy import make_proxy
from llm_sandbox_mcp.network.secrets import Secret, read_secrets
from llm_sandbox_mcp.policy import LIMITS, Network, Policy
from llm_sandbox_mcp.sections import SecretSection
from tests.engines.certificates import ensure
from tests.unit.tls_site import Site, tls_site

pytestmark = pytest.mark.anyio

SECRET = "Bearer hunter2-hunter2"


@dataclass
class Place:
    """A sandbox that is nothing but a loopback."""

    policy: Policy
    id: str = "sandbox-1"
    port: int = 0

    @asynccontextmanager
    async def listen(self, port: int = 0) -> AsyncIterator[Listener]:
        async with listen_on(socket.create_server(("127.0.0.1", 0))) as listener:
            self.port = listener.port
            yield listener


@dataclass
class Asking:
    """What a client of the proxy does."""

    port: int

    async def connect(self) -> anyio.abc.SocketStream:
        return await anyio.connect_tcp("127.0.0.1", self.port)

    async def send(self, raw: bytes) -> bytes:
        """The whole answer to raw bytes, up to the end of the connection or of what announces its length."""
        async with await self.connect() as stream:
            await stream.send(raw)
            return await answer(stream)

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
async def serving(*domains: str, secrets: tuple[Secret, ...] = ()) -> AsyncIterator[Asking]:
    network = Network("allow", tuple(map(Destination.parse, domains)))
    limits = dict.fromkeys(LIMITS, 1)
    place = Place(Policy(**limits, network=network))
    with anyio.fail_after(30):
        proxy = await make_proxy(Audit(), secrets)
        async with proxy.attached(place):  # type: ignore[arg-type]
            yield Asking(place.port)


@contextmanager
def echoing() -> Iterator[int]:
    """A port where all that is sent comes back."""
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
    """Names resolve to these addresses, one list after the other; gives the names that were asked for."""
    asked: list[str] = []

    def getaddrinfo(host: str, port: int, **_: object) -> list[Any]:
        asked.append(host)
        return [(0, 0, 0, "", (address, port)) for address in answers[min(len(asked), len(answers)) - 1]]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


@pytest.mark.parametrize("size", [5, 5_000_000], ids=["little", "much"])
async def test_what_is_sent_passes_whole_and_its_end_with_it(size: int) -> None:
    sent = bytes(range(256)) * (size // 256 + 1)
    with echoing() as port:
        async with serving(f"127.0.0.1:{port}") as asking, await asking.connect() as stream:
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


async def test_connections_that_carry_much_leave_descriptors_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    before = pipes()
    sent = bytes(range(256)) * 8000
    with echoing() as port:
        async with serving(f"127.0.0.1:{port}") as asking, AsyncExitStack() as held:
            for _ in range(6):
                stream = await held.enter_async_context(await asking.connect())
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
async def test_what_is_not_granted_gets_403_and_one_line_of_the_log(
    raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving("api.test") as asking:
        assert (await asking.send(raw)).startswith(b"HTTP/1.1 403 ")
    [line] = refused(caplog)
    assert (line["event"], line["sandbox"]) == ("network.refused", "sandbox-1")
    assert line["reason"]


async def test_of_requests_in_one_packet_each_is_judged_until_one_is_granted(caplog: pytest.LogCaptureFixture) -> None:
    def ask(port: int) -> bytes:
        return f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode()

    with echoing() as port:
        async with serving(f"127.0.0.1:{port}") as asking, await asking.connect() as stream:
            await stream.send(ask(1) + ask(2) + ask(port) + ask(3))
            got = b""
            while not got.endswith(ask(3)):
                got += await stream.receive()
    # What follows the one that is granted is for the host, and none of the proxy's business.
    assert [got.count(b"HTTP/1.1 %d " % status) for status in (403, 200)] == [2, 1]
    assert [line["target"] for line in refused(caplog)] == ["127.0.0.1:1", "127.0.0.1:2"]


async def test_a_name_with_hundreds_of_addresses_is_refused_for_one_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving("api.test") as asking:
        resolving(monkeypatch, [*(f"93.184.{number}.34" for number in range(256)), "10.0.0.5"])
        assert (await asking.tunnel("api.test:443")).startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize(
    "addresses", [["10.0.0.5"], ["127.0.0.1"], ["169.254.169.254"], ["93.184.216.34", "10.0.0.5"], ["::ffff:8.8.8.8"]]
)
async def test_a_name_that_leads_into_a_private_range_is_refused(
    addresses: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving("api.test") as asking:
        resolving(monkeypatch, addresses)
        assert (await asking.tunnel("api.test:443")).startswith(b"HTTP/1.1 403 ")
    assert "not public" in refused(caplog)[0]["reason"]


async def test_a_name_is_resolved_once_and_that_very_address_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    with echoing() as port:
        async with serving(f"api.test:{port}", f"127.0.0.1:{port}") as asking:
            asked = resolving(monkeypatch, ["127.0.0.1"], ["10.0.0.5"])
            assert (await asking.tunnel(f"API.test.:{port}")).startswith(b"HTTP/1.1 200 ")
    assert asked == ["api.test"]


async def test_a_host_that_cannot_be_reached_is_said_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    async with serving(f"127.0.0.1:{port}", "api.test") as asking:
        said = await asking.tunnel(f"127.0.0.1:{port}")
        assert said.startswith(b"HTTP/1.1 502 127.0.0.1 cannot be reached: Connection refused; ")

        def nobody(*_: object, **__: object) -> None:
            raise socket.gaierror(-2, "Name or service not known")

        monkeypatch.setattr(socket, "getaddrinfo", nobody)
        assert b"502 api.test cannot be resolved; " in await asking.tunnel("api.test:443")


async def test_a_resolver_that_does_not_answer_holds_no_more_threads_than_a_sandbox_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connecting, "SECONDS", 0.05)
    answering, asked = threading.Event(), []

    def getaddrinfo(host: str, *_: object, **__: object) -> list[Any]:
        asked.append(host)
        answering.wait(30)
        return [(0, 0, 0, "", ("10.0.0.5", 443))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    async with serving("*.test") as asking:
        try:
            for number in range(20):
                assert (await asking.tunnel(f"h{number}.test:443")).startswith(b"HTTP/1.1 504 ")
            assert len(asked) == proxies._LOOKUPS
        finally:
            answering.set()
        # They are used again once it answers.
        said = b"504"
        while b"504" in said:
            said = await asking.tunnel("later.test:443")
        assert said.startswith(b"HTTP/1.1 403 ")


async def test_a_connection_on_which_nothing_moves_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxies, "IDLE", 0.05)
    with echoing() as port:
        async with serving(f"127.0.0.1:{port}") as asking, await asking.connect() as stream:
            await stream.send(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            await answer(stream)
            with pytest.raises(anyio.EndOfStream):
                await stream.receive()


async def test_a_request_that_does_not_come_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "WAIT", 0.05)
    async with serving("api.test") as asking:
        assert await asking.send(b"CONNECT api.test:443 HTTP/1.1\r\nHost: ") == b""


async def test_more_connections_than_a_sandbox_may_have_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxies, "CONNECTIONS", 1)
    async with serving("api.test") as asking:
        async with await asking.connect():
            with anyio.move_on_after(0.05) as waiting:
                await asking.tunnel("other.test:443")
        assert waiting.cancelled_caught
        assert b"403" in await asking.tunnel("other.test:443")


async def test_refusals_without_end_hold_each_other_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxies, "_FREE", 1)
    monkeypatch.setattr(proxies, "_PENALTY", 20.0)
    async with serving("api.test") as asking:
        assert b"403" in await asking.tunnel("other.test:443")
        with anyio.move_on_after(0.05) as waiting:
            await asking.tunnel("other.test:443")
        assert waiting.cancelled_caught


async def test_the_log_cannot_be_forged(caplog: pytest.LogCaptureFixture) -> None:
    forged = b'a"}\r{"event":"x","target":"\xe2\x80\xa8' + b"y" * 300
    async with serving("api.test") as asking:
        await asking.send(b"CONNECT " + forged + b" HTTP/1.1\r\n\r\n")
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


async def test_a_secret_is_added_to_a_request_that_goes_on_over_tls(site: Site) -> None:
    secrets = (secret(site.port), secret(site.port, "x-key", "second"))
    async with serving(secrets=secrets) as asking:
        host = f"127.0.0.1:{site.port}"
        head = f"POST http://{host}/path?q=1 HTTP/1.1\r\nHost: {host}\r\nAuthorization: mine\r\nAUTHORIZATION: too\r\n"
        head += "Proxy-Authorization: x\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nX-Own: 2\r\n"
        for framing, body in (
            ("Content-Length: 5\r\n\r\n", b"hello"),
            ("Transfer-Encoding: chunked\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n"),
        ):
            got = await asking.send((head + framing).encode() + body)
            assert got.startswith(b"HTTP/1.1 200 ")
            assert b"hunter2" not in got
    for method, path, headers, body in site.asked:
        assert (method, path, body) == ("POST", "/path?q=1", b"hello")
        assert (headers["authorization"], headers["x-key"], headers["host"]) == (SECRET, "second", host)
        assert headers["x-own"] == "2"
        assert not {"x-hop", "proxy-authorization", "connection"} & set(headers)
    assert len(site.asked) == 2


async def test_a_request_with_two_lengths_goes_on_with_one(site: Site) -> None:
    async with serving(secrets=(secret(site.port),)) as asking:
        head = f"POST http://127.0.0.1:{site.port}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 30\r\n"
        head += "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        got = await asking.send(head.encode())
    assert got.startswith(b"HTTP/1.1 200 ")
    [(_, _, headers, body)] = site.asked
    assert body == b"hello"
    assert "content-length" not in headers


@pytest.mark.parametrize("method", ["TRACE", "TRACK", "trace", "DEBUG", "CUSTOM"])
async def test_no_request_asks_a_server_to_repeat_what_it_was_sent(
    site: Site, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(secrets=(secret(site.port),)) as asking:
        got = await asking.send(f"{method} http://127.0.0.1:{site.port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert got.startswith(b"HTTP/1.1 403 ")
    assert site.asked == []
    assert refused(caplog)[0]["method"] == method


async def test_no_header_of_the_code_is_taken_for_one_with_a_secret(site: Site) -> None:
    async with serving(secrets=(secret(site.port, "x-api-key"),)) as asking:
        head = f"GET http://127.0.0.1:{site.port}/ HTTP/1.1\r\nHost: x\r\nX_Api_Key: mine\r\nX-API_KEY: too\r\n\r\n"
        await asking.send(head.encode())
    [(_, _, headers, _)] = site.asked
    assert {name: value for name, value in headers.items() if "key" in name} == {"x-api-key": SECRET}


async def test_a_redirect_is_for_the_code_to_follow(site: Site) -> None:
    async with serving(secrets=(secret(site.port),)) as asking:
        host = f"127.0.0.1:{site.port}"
        got = await asking.send(f"GET http://{host}/elsewhere HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert got.startswith(b"HTTP/1.1 302 ")
    assert b"location: http://other.test/" in got.lower()
    assert len(site.asked) == 1


@pytest.mark.parametrize(
    "target", ["http://127.0.0.1:{other}/", "http://127.0.0.2:{port}/", "https://127.0.0.1:{port}/"]
)
async def test_a_secret_goes_nowhere_else(site: Site, target: str, caplog: pytest.LogCaptureFixture) -> None:
    place = target.format(port=site.port, other=site.port + 1)
    caplog.set_level(logging.DEBUG)
    async with serving(secrets=(secret(site.port),)) as asking:
        got = await asking.send(f"GET {place} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        # Nor is it a grant to connect, with which code would get past the header.
        tunnel = await asking.tunnel(f"127.0.0.1:{site.port}")
    assert got.startswith(b"HTTP/1.1 403 ")
    assert tunnel.startswith(b"HTTP/1.1 403 ")
    assert site.asked == []
    assert "hunter2" not in caplog.text


async def test_a_name_with_a_secret_is_resolved_once_and_nowhere_private(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = Secret(Destination("models.test", site.port), "authorization", SECRET)
    ask = f"GET http://models.test:{site.port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    async with serving(secrets=(named,)) as asking:
        resolving(monkeypatch, ["127.0.0.1"])
        assert (await asking.send(ask)).startswith(b"HTTP/1.1 403 'models.test' is at an address that is not public")
    async with serving(f"127.0.0.1:{site.port}", secrets=(named,)) as asking:
        asked = resolving(monkeypatch, ["127.0.0.1"], ["10.0.0.5"])
        # The server there has another name, and learns nothing.
        assert (await asking.send(ask)).startswith(b"HTTP/1.1 502 models.test failed at TLS: ")
    assert asked == ["models.test"]
    assert site.asked == []


async def test_of_two_secrets_of_a_host_each_goes_to_its_own_port(site: Site) -> None:
    async with serving(secrets=(secret(site.port + 1, "x-other", "other"), secret(site.port))) as asking:
        await asking.send(f"GET http://127.0.0.1:{site.port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    [(_, _, headers, _)] = site.asked
    assert headers["authorization"] == SECRET
    assert "x-other" not in headers


async def test_a_secret_is_sent_to_nobody_who_cannot_prove_his_name(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(ensure("another").server.ca))
    caplog.set_level(logging.DEBUG)
    async with serving(secrets=(secret(site.port),)) as asking:
        got = await asking.send(f"GET http://127.0.0.1:{site.port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
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
    ("content", "said"), [(b"", "has no value"), (b"a\r\nX: b", "no header"), (b"\xff", "no header")]
)
def test_a_secret_that_cannot_be_is_named_without_its_value(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "token").write_bytes(content)
    section = SecretSection(domain="api.test", header="X-Key", value_file=str(tmp_path / "token"))
    with pytest.raises(ProfileError, match=rf"^network\.secrets\.0\.value_file: .* {said}.*; ") as error:
        read_secrets([section], {})
    assert "X: b" not in str(error.value)
    with pytest.raises(ProfileError, match=r"value_env: KEY has no value"):
        read_secrets([SecretSection(domain="api.test", header="X-Key", value_env="KEY")], {})
    with pytest.raises(ProfileError, match=r"cannot be read: No such file"):
        read_secrets([SecretSection(domain="api.test", header="X-Key", value_file="/nonexistent")], {})
