"""A server on loopback that speaks TLS and records its requests."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.engines.certificates import ensure


@dataclass
class Site:
    """A server that speaks TLS, and the requests that it received."""

    port: int
    raw: dict[str, bytes] = field(default_factory=dict)
    """What it answers to requests for these paths, as it is, before it ends the connection."""
    asked: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        body = b""
        if self.headers.get("transfer-encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        elif length := self.headers.get("content-length"):
            body = self.rfile.read(int(length))
        headers = {name.lower(): ", ".join(self.headers.get_all(name, ())) for name in self.headers}
        self.server.site.asked.append((self.command, self.path, headers, body))  # type: ignore[attr-defined]
        if self.path in self.server.site.raw:  # type: ignore[attr-defined]
            self.close_connection = True
            with suppress(OSError):  # a client need not read all of it
                self.wfile.write(self.server.site.raw[self.path])  # type: ignore[attr-defined]
            return
        self.send_response(302 if self.path == "/elsewhere" else 200)
        if self.path == "/elsewhere":
            self.send_header("Location", "http://other.test/")
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"answer")

    do_GET = do_POST = _answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


_OK = b"HTTP/1.1 200 OK\r\n"
ODD = {
    "no answer": b"",
    "no HTTP": b"\xff\x00\r\n\r\n" * 100,
    "a value beyond ASCII": _OK + b"x-odd: caf\xe9 \xff\r\ncontent-length: 2\r\n\r\nok",
    "a value with a control": _OK + b"x-odd: \x01\x1b[2J\r\ncontent-length: 2\r\n\r\nok",
    "a name beyond ASCII": _OK + b"x-\xe9: 1\r\ncontent-length: 2\r\n\r\nok",
    "a name with a space": _OK + b"x odd : 1\r\ncontent-length: 2\r\n\r\nok",
    "a reason beyond ASCII": b"HTTP/1.1 200 caf\xe9 \xff\r\ncontent-length: 2\r\n\r\nok",
    "a status below those of answers": b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nok",
    "a status that does not exist": b"HTTP/1.1 999 Odd\r\ncontent-length: 2\r\n\r\nok",
    "a status of two digits": b"HTTP/1.1 20 OK\r\ncontent-length: 2\r\n\r\nok",
    "statuses that only inform": b"HTTP/1.1 103 Early\r\nx: \xe9\r\n\r\n" * 100 + _OK + b"content-length: 0\r\n\r\n",
    "a folded value": _OK + b"x-odd: one\r\n two\r\n\tthree\r\ncontent-length: 2\r\n\r\nok",
    "a connection header beyond ASCII": _OK + b"connection: \xe9, \xff\r\ncontent-length: 2\r\n\r\nok",
    "a megabyte of headers": _OK + b"x-odd: 1\r\n" * 100_000 + b"\r\n",
    "two lengths": _OK + b"content-length: 2\r\ncontent-length: 3\r\n\r\nok",
    "a length that is none": _OK + b"content-length: -2\r\n\r\nok",
    "a length that is too large": _OK + b"content-length: 5\r\n\r\nok",
    "a length that is too small": _OK + b"content-length: 1\r\n\r\nok",
    "a length and chunks": _OK + b"content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "an unknown coding": _OK + b"transfer-encoding: odd\r\n\r\nok",
    "chunks that are none": _OK + b"transfer-encoding: chunked\r\n\r\n\xff\xffzz\r\nok\r\n",
    "a chunk that is cut": _OK + b"transfer-encoding: chunked\r\n\r\n5\r\nok",
    "odd trailers": _OK + b"transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-\xe9: \xff\r\n\r\n",
    "a body where none may be": b"HTTP/1.1 204 No\r\ncontent-length: 2\r\n\r\nok",
}
"""Answers of a server that is broken, or means harm, by what is odd about them."""


@contextmanager
def tls_site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Serves inside the `with` block; clients that are opened there trust its certificate."""
    authority = ensure("proxy")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.server.ca))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.server.cert, authority.server.key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.site = found = Site(server.server_address[1])  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
