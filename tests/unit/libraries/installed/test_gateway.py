"""The package index gateway: a hostile sandbox cannot get more from it than a package manager asks for."""

import base64
import gzip
import json
import socket
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import anyio
import anyio.lowlevel
import httpx2
import pytest
from anyio.abc import SocketAttribute, SocketStream
from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.libraries.installed import gateway as gateway_module
from llm_sandbox_mcp.libraries.installed import index_client
from llm_sandbox_mcp.libraries.installed.downloads import Downloads
from llm_sandbox_mcp.libraries.installed.gateway import Gateways, checked_path
from llm_sandbox_mcp.libraries.installed.index_pages import PAGES, Rewriting
from llm_sandbox_mcp.network import elsewhere, http1
from llm_sandbox_mcp.network.http1 import Refused
from tests.gateways import UNTRUSTING, Gateway, gateway
from tests.local_index import SIMPLE_JSON, LocalIndex, Page, wheel

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize(
    "target",
    [
        "/../private",
        "/./tiny/",
        "/%2e%2e/private",
        "/%2E%2e/private",
        "/..%2fprivate",
        "/..%5cprivate",
        "/%252e%252e/private",
        "/a%00b",
        "/a%0d%0aHost:x",
        "//private",
        "//private/simple",
        "/@a%2f../b",
        "/a%2fb",
        "/a\\b",
        "/#/x",
        "*",
        "/files/00112233445566778899aabbccddeeff/tiny.whl",
        "http://127.0.0.1/simple/",
        "http://169.254.169.254/latest/",
        "simple/",
    ],
)
async def test_targets_outside_the_index_are_refused_and_reach_no_server(index: LocalIndex, target: str) -> None:
    async with gateway(f"{index.url}/simple") as serving:
        head = f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{serving.port}\r\nConnection: close\r\n\r\n"
        answer = await serving.send(head.encode())
    assert answer.split(b" ", 2)[1] in (b"400", b"403", b"404")
    assert index.requests == []


async def test_every_request_stays_below_the_path_of_the_index(index: LocalIndex) -> None:
    async with gateway(f"{index.url}/simple") as serving:
        for target in ("/", "/private", "/simple/tiny/"):
            await serving.ask(target)
    assert [path for path, _ in index.requests] == ["/simple/", "/simple/private", "/simple/simple/tiny/"]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n", b"400"),
        ("POST /tiny/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n", b"405"),
        ("GET /tiny/ HTTP/1.1\r\nHost: {host}\r\nContent-Length: 9\r\n\r\n", b"400"),
        ("GET /tiny/ HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n", b"400"),
        ("GET /tiny/ HTTP/1.1\r\nHost: another.example\r\nConnection: close\r\n\r\n", b"403"),
        ("GET /tiny/ HTTP/1.1\r\nConnection: close\r\n\r\n", b"400"),
        ("GET /\0 HTTP/1.1\r\nHost: {host}\r\n\r\n", b"400"),
        ("GET / HTTP/1.1\r\nHost: {host}\r\nX: \0\r\n\r\n", b"400"),
        ("GET / HTTP/1.1\r\nHost: {host}\r\nX: " + "x" * http1.HEAD, b"431"),
        ("\x16\x03\x01\x02\x00\x01\r\n\r\n", b"400"),
    ],
)
async def test_hostile_requests_are_refused_and_the_next_is_served(index: LocalIndex, head: str, status: bytes) -> None:
    index.pages["/simple/tiny/"] = Page(b"{}", SIMPLE_JSON)
    async with gateway(f"{index.url}/simple") as serving:
        answer = await serving.send(head.replace("{host}", f"127.0.0.1:{serving.port}").encode())
        assert answer.split(b" ", 2)[1] == status
        assert index.requests == []
        assert (await serving.ask("/tiny/")).status_code == 200


async def test_a_request_that_never_ends_loses_its_connection(
    index: LocalIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1, "WAIT", 0.05)
    async with gateway(f"{index.url}/simple") as serving:
        assert await serving.send(b"GET / HTTP/1.1\r\nHost: ") == b""


async def test_connections_beyond_the_limit_wait_for_a_free_place(
    index: LocalIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_module, "CONNECTIONS", 1)
    index.pages["/simple/tiny/"] = Page(b"{}", SIMPLE_JSON)
    async with gateway(f"{index.url}/simple") as serving:
        async with await anyio.connect_tcp("127.0.0.1", serving.port), anyio.create_task_group() as tasks:
            with anyio.move_on_after(0.05) as waiting:
                await serving.ask("/tiny/")
            tasks.cancel_scope.cancel()
        assert waiting.cancelled_caught
        assert (await serving.ask("/tiny/")).status_code == 200


PRIVATE = (
    "is at a private address, or one of this machine, which is allowed only for the package index itself, "
    "at its own port"
)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_page_cannot_lead_the_server_to_another_service_of_the_index_machine(
    index: LocalIndex, stranger: LocalIndex, scheme: str
) -> None:
    index.add_project("tiny", wheel("tiny"), LocalIndex(stranger.port))
    page = index.pages["/simple/tiny/"]
    page.body = page.body.replace(b"http://", f"{scheme}://".encode())
    async with gateway(f"{index.url}/simple") as serving:
        named = (await serving.ask("/tiny/")).json()["files"][0]["url"]
        file = await serving.ask(urlsplit(named).path)
    assert (file.status_code, file.text) == (403, f"127.0.0.1 {PRIVATE}\n")
    assert stranger.requests == []


async def test_an_index_that_is_down_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    async with gateway(f"http://someone:hunter2@127.0.0.1:{port}/simple") as serving:
        answer = await serving.ask("/tiny/")
    assert answer.status_code == 502
    assert answer.text == "127.0.0.1 cannot be reached: Connection refused\n"
    assert serving.problems == [answer.text.strip()]


async def test_an_index_without_working_tls_is_reported(index: LocalIndex) -> None:
    async with gateway(f"https://127.0.0.1:{index.port}/simple") as serving:
        answer = await serving.ask("/tiny/")
    assert answer.status_code == 502
    assert answer.text.startswith("127.0.0.1 failed at TLS: ")
    assert answer.text.count("\n") == 1


async def test_credentials_go_only_to_the_index_and_never_to_the_sandbox(index: LocalIndex, files: LocalIndex) -> None:
    index.add_project("tiny", wheel("tiny"), files)
    upstream = index.url.replace("://", "://someone:hunter2@") + "/simple/"
    async with gateway(upstream) as serving:
        page = await serving.ask("/tiny/")
        named = urlsplit(page.json()["files"][0]["url"]).path
        file = await serving.ask(named)
        missing = await serving.ask("/missing/")
    assert "hunter2" not in serving.url + page.text + str(page.headers) + str(missing.headers) + missing.text
    assert (file.status_code, missing.status_code) == (200, 404)
    assert index.requests[0][1]["authorization"].startswith("Basic ")
    assert "authorization" not in files.requests[0][1]


@pytest.mark.parametrize("host", ["169.254.169.254", "10.0.0.1", "[::ffff:169.254.169.254]", "[::1]"])
async def test_a_page_cannot_lead_the_server_into_a_private_network(index: LocalIndex, host: str) -> None:
    link = {"filename": "x.whl", "url": f"http://{host}/latest/x.whl", "hashes": {}}
    index.pages["/simple/tiny/"] = Page(json.dumps({"files": [link]}).encode(), SIMPLE_JSON)
    async with gateway(f"{index.url}/simple") as serving:
        page = await serving.ask("/tiny/")
        file = await serving.ask(urlsplit(page.json()["files"][0]["url"]).path)
    assert file.status_code == 403
    assert "private address" in file.text


async def test_a_page_cannot_lead_the_server_to_itself_at_a_public_address(
    index: LocalIndex, stranger: LocalIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elsewhere, "is_public", lambda address: True)
    index.add_project("tiny", wheel("tiny"), LocalIndex(stranger.port))
    async with gateway(f"{index.url}/simple") as serving:
        named = (await serving.ask("/tiny/")).json()["files"][0]["url"]
        assert (await serving.ask(urlsplit(named).path)).status_code == 403
    assert stranger.requests == []


async def test_each_problem_is_told_once_and_not_more_than_a_few(index: LocalIndex) -> None:
    links = "".join(f'<a href="http://10.0.0.{number}/x.whl">x</a>' for number in range(20))
    index.pages["/simple/tiny/"] = Page(links.encode(), "text/html")
    async with gateway(f"{index.url}/simple") as serving:
        for named in (await serving.ask("/tiny/")).text.split('"')[1::2]:
            for _ in range(2):
                assert (await serving.ask(urlsplit(named).path)).status_code == 403
    assert serving.problems == [f"10.0.0.{number} {PRIVATE}" for number in range(8)]


@pytest.mark.parametrize(
    ("location", "status"),
    [("http://169.254.169.254/latest/", 403), ("file:///etc/passwd", 502), ("/simple/loop/", 502)],
)
async def test_redirects_are_followed_by_the_gateway_under_the_same_rules(
    index: LocalIndex, location: str, status: int
) -> None:
    index.pages["/simple/loop/"] = Page(b"", status=302, headers={"Location": location})
    async with gateway(f"{index.url}/simple") as serving:
        answer = await serving.ask("/loop/")
    assert answer.status_code == status
    assert "location" not in answer.headers


@pytest.mark.parametrize("place", ["elsewhere", "other/simple/tiny/", "simple/..;/x", "simple/%2e%2e/x", "simplex"])
@pytest.mark.parametrize("to", ["the same", "another name", "another port"])
async def test_a_redirect_out_of_an_index_at_a_private_address_is_refused(
    index: LocalIndex, files: LocalIndex, stranger: LocalIndex, place: str, to: str
) -> None:
    other = {"the same": index, "another name": files, "another port": stranger}[to]
    for page in (f"/{place}", "/x"):
        other.pages[page] = Page(b"of the same machine")
    index.pages["/simple/tiny/"] = Page(b"", status=302, headers={"Location": f"{other.url}/{place}"})
    upstream = index.url.replace("://", "://someone:hunter2@") + "/simple"
    async with gateway(upstream) as serving:
        answer = await serving.ask("/tiny/")
    host = urlsplit(other.url).hostname
    assert (answer.status_code, answer.text) == (403, f"{host} {PRIVATE}\n")
    assert len(index.requests) + len(files.requests) + len(stranger.requests) == 1


async def test_credentials_follow_a_redirect_within_the_index(index: LocalIndex) -> None:
    index.pages["/simple/tiny/"] = Page(b"", status=302, headers={"Location": "/simple/other/"})
    index.pages["/simple/other/"] = Page(b"{}", SIMPLE_JSON)
    async with gateway(index.url.replace("://", "://someone:hunter2@") + "/simple") as serving:
        assert (await serving.ask("/tiny/")).text == "{}"
    assert all("authorization" in headers for _, headers in index.requests) and len(index.requests) == 2


async def test_credentials_do_not_follow_a_redirect_out_of_the_index(
    index: LocalIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tests never connect to public addresses; the tests above show which addresses a redirect can lead to.
    monkeypatch.setattr(index_client, "is_elsewhere", lambda address: True)
    index.pages["/simple/tiny/"] = Page(b"", status=302, headers={"Location": "/elsewhere"})
    index.pages["/elsewhere"] = Page(b"", status=302, headers={"Location": "/simple/other/"})
    index.pages["/simple/other/"] = Page(b"{}", SIMPLE_JSON)
    async with gateway(index.url.replace("://", "://someone:hunter2@") + "/simple") as serving:
        assert (await serving.ask("/tiny/")).text == "{}"
    assert ["authorization" in headers for _, headers in index.requests] == [True, False, False]


async def test_links_of_a_redirected_page_are_relative_to_its_final_address(index: LocalIndex) -> None:
    index.pages["/simple/Tiny/"] = Page(b"", status=301, headers={"Location": "/simple/deep/tiny/"})
    index.pages["/simple/deep/tiny/"] = Page(b'<a href="../tiny.whl#sha256=00">x</a>', "text/html")
    index.pages["/simple/deep/tiny.whl"] = Page(b"content")
    async with gateway(f"{index.url}/simple") as serving:
        page = await serving.ask("/Tiny/")
        assert page.text.endswith('tiny.whl#sha256=00">x</a>')
        file = await serving.ask(urlsplit(page.text.split('"')[1]).path)
    assert file.content == b"content"


@pytest.mark.parametrize(
    "link",
    ["tiny.whl", "/simple/tiny/tiny.whl", "//{host}/simple/tiny/tiny.whl", "/other/../simple/tiny/./tiny.whl", "?x=y"],
)
async def test_relative_links_lead_where_they_lead_without_the_gateway(index: LocalIndex, link: str) -> None:
    link = link.replace("{host}", f"127.0.0.1:{index.port}")
    index.pages["/simple/tiny/"] = Page(f'<a href="{link}#a">x</a>'.encode(), "text/html")
    async with gateway(f"{index.url}/simple") as serving:
        named = (await serving.ask("/tiny/")).text.split('"')[1]
        await serving.ask(urlsplit(named).path + ("?x=y" if "?" in named else ""))
    wanted = urlsplit(urljoin(f"{index.url}/simple/tiny/", link))
    assert named.endswith("#a")
    assert index.requests[-1][0] == f"{wanted.path}{'?' if wanted.query else ''}{wanted.query}"


async def test_a_link_of_more_than_4096_bytes_is_left_as_it_is(index: LocalIndex) -> None:
    begin = "http://files.example/"
    long, longer = (f"{begin}{'a' * (size - len(begin) - 9)}/tiny.whl" for size in (4096, 4097))
    index.pages["/simple/tiny/"] = Page(f'<a href="{long}">x</a><a href="{longer}">x</a>'.encode(), "text/html")
    async with gateway(f"{index.url}/simple") as serving:
        found = (await serving.ask("/tiny/")).text.split('"')[1::2]
    assert found[0].endswith("/tiny.whl") and "/files/" in found[0] and len(found[0]) < 200
    assert found[1] == longer


async def test_ranges_and_validators_of_files_are_passed_on_and_pages_are_never_stored(index: LocalIndex) -> None:
    index.pages["/simple/tiny.jar"] = Page(b"0123456789", headers={"ETag": '"v1"'})
    index.pages["/simple/tiny/"] = Page(b"{}", SIMPLE_JSON, headers={"ETag": '"v1"'})
    async with gateway(f"{index.url}/simple") as serving:
        part = await serving.ask("/tiny.jar", range="bytes=2-4")
        same = await serving.ask("/tiny.jar", if_none_match='"v1"')
        head = await serving.ask("/tiny.jar", "HEAD")
        page = await serving.ask("/tiny/")
    assert (part.status_code, part.content, part.headers["content-range"]) == (206, b"234", "bytes 2-4/10")
    assert (same.status_code, same.headers["etag"]) == (304, '"v1"')
    assert (head.status_code, head.headers["content-length"], head.content) == (200, "10", b"")
    assert page.headers["cache-control"] == "no-store"
    assert "etag" not in page.headers


async def test_only_files_that_never_change_are_kept(index: LocalIndex, tmp_path: Path) -> None:
    index.pages |= {
        "/gems/tiny-1.0.gem": Page(b"first"),
        "/gems/tiny-1.0.gem?part=1": Page(b"a part"),
        "/specs.gz": Page(b"first"),
        "/more/gems/tiny-1.0.gem": Page(b"first"),
    }
    targets = [*index.pages, "/gems/absent-1.0.gem"]
    for content in (b"first", b"second"):
        async with gateway(f"{index.url}/", Downloads(tmp_path), r"gems/[^/]+\.gem") as serving:
            answers = {target: await serving.ask(target) for target in targets}
        assert answers.pop("/gems/absent-1.0.gem").status_code == 404
        assert answers.pop("/gems/tiny-1.0.gem").content == b"first"
        assert answers.pop("/gems/tiny-1.0.gem?part=1").content == b"a part"
        assert {answer.content for answer in answers.values()} == {content}
        for page in index.pages.values():
            page.body = page.body.replace(b"first", b"second")
    asked = [path for path, _ in index.requests]
    assert [asked.count(target) for target in targets] == [1, 2, 2, 2, 2]


@pytest.mark.parametrize(("length", "asked"), [(4096, 1), (4097, 2)])
async def test_a_file_is_kept_under_an_address_of_4_kib_at_most(
    index: LocalIndex, tmp_path: Path, length: int, asked: int
) -> None:
    path = f"/{'x' * (length - 5)}.whl"
    index.pages[path] = Page(b"content")
    for _ in range(2):
        async with gateway(f"{index.url}/", Downloads(tmp_path), r"x+\.whl") as serving:
            assert (await serving.ask(path)).content == b"content"
    assert len(index.requests) == asked


async def test_a_file_that_needed_credentials_is_kept_only_for_the_same_credentials(
    index: LocalIndex, tmp_path: Path
) -> None:
    index.pages["/tiny.whl"] = Page(b"private")
    downloads = Downloads(tmp_path)
    for upstream in ("ann:secret@", "", "ben:secret@", "ann:secret@", ""):
        async with gateway(index.url.replace("//", f"//{upstream}"), downloads, ".*whl") as serving:
            assert (await serving.ask("/tiny.whl")).content == b"private"
    sent = [base64.b64decode(headers.get("authorization", "")[6:]).decode() for _, headers in index.requests]
    assert sent == ["ann:secret", "", "ben:secret"]


async def test_files_that_arrive_take_no_more_room_than_kept_ones(tmp_path: Path) -> None:
    downloads = Downloads(tmp_path, limit=10)
    async with downloads.keep(b"a", 6) as first, downloads.keep(b"b", 5) as second, downloads.keep(b"c", 4) as third:
        assert len(list(tmp_path.iterdir())) == 2
        for take, content in ((first, b"123456"), (second, b"12345"), (third, b"1234")):
            await take(content)
    assert sorted(path.stat().st_size for path in tmp_path.iterdir()) == [4, 6]
    async with downloads.keep(b"d", 11):
        assert len(list(tmp_path.iterdir())) == 2


async def test_kept_files_make_room_for_later_files_and_incomplete_files_are_not_kept(tmp_path: Path) -> None:
    downloads = Downloads(tmp_path, limit=10)
    for name, content, size in (("a", b"123456", 6), ("b", b"123456", 6), ("c", b"123", 6)):
        async with downloads.keep(name.encode(), size) as take:
            await take(content)
    found = [await downloads.find(name) for name in (b"a", b"b", b"c")]
    assert [file is not None for file in found] == [False, True, False]
    for file in filter(None, found):
        await file.aclose()
    assert len(list(tmp_path.iterdir())) == 1


@asynccontextmanager
async def answering(
    first: bytes, rest: Iterable[bytes] = (), between: Callable[[], Awaitable[object]] = anyio.lowlevel.checkpoint
) -> AsyncIterator[str]:
    """An index that answers each request with these bytes, and awaits something before the rest; yields its address."""

    async def answer(stream: SocketStream) -> None:
        async with stream:
            with suppress(anyio.BrokenResourceError):
                await stream.receive()
                await stream.send(first)
                for part in rest:
                    await between()
                    await stream.send(part)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        tasks.cancel_scope.cancel()


def head(kind: str, *more: str, status: str = "200 OK") -> bytes:
    """The head of an answer whose body ends with its connection."""
    return "\r\n".join([f"HTTP/1.1 {status}", f"Content-Type: {kind}", "Connection: close", *more, "", ""]).encode()


@asynccontextmanager
async def reading(serving: Gateway, target: str = "/") -> AsyncIterator[AsyncIterator[bytes]]:
    """The pieces of an answer, as they arrive."""
    async with (
        httpx2.AsyncClient(trust_env=False, verify=UNTRUSTING) as client,
        client.stream("GET", serving.url.rstrip("/") + target) as answer,
    ):
        yield answer.aiter_bytes()


@pytest.mark.parametrize("kind", PAGES)
async def test_a_page_reaches_the_package_manager_while_it_arrives(kind: str) -> None:
    arrived = anyio.Event()
    async with (
        answering(head(kind) + b" " * 100, [b"[" * 100], arrived.wait) as upstream,
        gateway(upstream) as serving,
        reading(serving) as pieces,
    ):
        assert await anext(pieces) == b" " * 100
        arrived.set()
        assert b"".join([piece async for piece in pieces]) == b"[" * 100


MEGABYTE = 1 << 20


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["text/html", SIMPLE_JSON])
async def test_a_long_page_takes_little_memory(kind: str, packed: bool) -> None:
    text = b'<a href="/tiny/">tiny</a> {"files": [{"url": "/tiny"}]}' + b" " * 4000
    page = text * (4 * MEGABYTE // len(text))
    body = gzip.compress(page) if packed else page
    coding = ("Content-Encoding: gzip",) if packed else ()
    pieces = [body[start : start + 65536] for start in range(0, len(body), 65536)]
    async with answering(head(kind, *coding), pieces) as upstream, gateway(upstream) as serving:
        tracemalloc.start()
        async with reading(serving) as received:
            length = sum([len(piece) async for piece in received])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert length >= len(page)
    assert peak < MEGABYTE


async def test_a_page_that_is_too_long_is_cut_off(index: LocalIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_module, "PAGE", MEGABYTE)
    index.pages["/simple/long/"] = Page(b" " * (2 * MEGABYTE), SIMPLE_JSON)
    async with gateway(f"{index.url}/simple") as serving:
        with pytest.raises(httpx2.RemoteProtocolError):
            await serving.ask("/long/")
    assert serving.problems == ["127.0.0.1 answered with more than 1 MiB"]


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(b"x" * 1000)[:-1]),
        ("gzip", gzip.compress(b"x" * 1000)[:20]),
        ("gzip", gzip.compress(b"x") + b"more"),
        ("gzip", b""),
        ("gzip", b"no gzip"),
        ("br", b"x"),
        ("gzip, gzip", gzip.compress(gzip.compress(b"x"))),
    ],
    ids=["no end", "cut", "more", "empty", "no gzip", "br", "twice"],
)
async def test_a_page_that_cannot_be_unpacked_is_cut_off(coding: str, body: bytes) -> None:
    async with (
        answering(head("text/html", f"Content-Encoding: {coding}") + body) as upstream,
        gateway(upstream) as serving,
    ):
        with pytest.raises(httpx2.RemoteProtocolError):
            await serving.ask("/")
    assert serving.problems == ["127.0.0.1 answered with a page that cannot be read"]


@pytest.mark.parametrize("coding", ["gzip", "identity"])
async def test_a_page_that_breaks_off_does_not_look_complete(coding: str) -> None:
    body = gzip.compress(b"<a>") if coding == "gzip" else b"<a>"
    answer = head("text/html", f"Content-Encoding: {coding}", f"Content-Length: {len(body) + 1}") + body
    async with answering(answer) as upstream, gateway(upstream) as serving:
        with pytest.raises(httpx2.RemoteProtocolError):
            await serving.ask("/")


async def test_the_bytes_of_a_page_never_hold_up_other_tasks() -> None:
    page = PAGES["text/html"](str)
    turns = 0

    async def neighbour() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(neighbour)
        done = await Gateways().rewrite(anyio.Lock(), page, b"<a " * 300_000) + page.end()
        tasks.cancel_scope.cancel()
    assert done == b"<a " * 300_000
    assert turns >= 300


async def test_installations_take_turns_however_many_pages_one_of_them_asks_for() -> None:
    gateways, greedy, other = Gateways(), anyio.Lock(), anyio.Lock()
    turns = []

    class Counted(Rewriting):
        def feed(self, piece: bytes) -> bytes:
            turns.append(self._locate(""))
            return piece

        def _outside(self, piece: bytes, at: int) -> int:
            raise AssertionError

        def _relocated(self, link: bytes) -> bytes:
            raise AssertionError

    async with anyio.create_task_group() as tasks:
        for _ in range(64):
            tasks.start_soon(gateways.rewrite, greedy, Counted(lambda _: "greedy"), bytes(1 << 20))
        await anyio.lowlevel.checkpoint()  # all of them wait now
        await gateways.rewrite(other, Counted(lambda _: "other"), bytes(1 << 20))
        tasks.cancel_scope.cancel()
    assert turns.count("greedy") <= turns.count("other") + 2


async def test_a_page_of_any_bytes_is_served(index: LocalIndex) -> None:
    index.pages["/simple/odd/"] = Page(b"<a " * 300_000, "text/html")
    async with gateway(f"{index.url}/simple") as serving:
        assert (await serving.ask("/odd/")).content == b"<a " * 300_000


@pytest.mark.parametrize("value", [b"\xff", b"\xc3\xa9", b"a\x01b", b"\x7f"])
@pytest.mark.parametrize("kind", ["text/html", "text/plain"])
async def test_headers_that_are_no_plain_text_are_left_out(kind: str, value: bytes) -> None:
    lines = [f"HTTP/1.1 200 OK\r\nContent-Type: {kind}; charset=".encode(), b"\r\nETag: ", b"\r\nX: ", b"\r\n"]
    answer = value.join(lines) + b"Content-Length: 1\r\nCache-Control: no-cache\r\n\r\nx"
    async with answering(answer) as upstream, gateway(upstream) as serving:
        got = await serving.ask("/")
    assert (got.status_code, got.content) == (200, b"x")
    assert got.headers["cache-control"] == ("no-store" if kind == "text/html" else "no-cache")
    assert not {"etag", "x", "content-type"} & got.headers.keys()


async def test_the_end_of_the_body_of_a_redirect_is_not_awaited() -> None:
    moved = head("text/plain", "Location: /", status="302 Found") + b"x" * (1 << 17)
    async with answering(moved, [b"x"], anyio.sleep_forever) as upstream, gateway(upstream) as serving:
        assert (await serving.ask("/")).text == "127.0.0.1 redirected more than 5 times\n"


async def test_cookies_of_an_index_are_not_kept(index: LocalIndex) -> None:
    index.pages["/tiny.jar"] = Page(b"content", headers={"Set-Cookie": "a=b"})
    async with gateway(index.url) as serving:
        for _ in range(2):
            await serving.ask("/tiny.jar")
    assert ["cookie" in headers for _, headers in index.requests] == [False, False]


async def test_an_answer_that_breaks_off_does_not_look_complete(index: LocalIndex) -> None:
    index.pages["/simple/tiny.jar"] = Page(b"0123456789", headers={"X": "y\r\nContent-Length: 99"})
    async with gateway(f"{index.url}/simple") as serving:
        with pytest.raises(httpx2.HTTPError):
            (await serving.ask("/tiny.jar")).raise_for_status()
        index.pages["/simple/tiny.jar"] = Page(b"0123456789")
        assert (await serving.ask("/tiny.jar")).content == b"0123456789"


@given(
    st.lists(
        st.sampled_from(
            ["/", ".", "..", ";", ";a", "%3b", "%2e", "%2F", "%5c", "\\", "%00", "%25", "a", "@", "@a%2f", "?", "#"]
        )
    )
)
def test_an_accepted_path_means_the_same_place_however_it_is_decoded(parts: list[str]) -> None:
    try:
        path, _ = checked_path("/" + "".join(parts))
    except Refused:
        return
    decoded = unquote(unquote(path)).replace("\\", "/")
    assert not {".", ".."} & {segment.partition(";")[0] for segment in decoded.split("/")}
    assert "//" not in decoded
    assert "\0" not in decoded
