"""A server on loopback that speaks TLS and records its requests."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.engines.certificates import ensure


@dataclass
class Site:
    """A server that speaks TLS, and the requests that it received."""

    port: int
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
        self.send_response(302 if self.path == "/elsewhere" else 200)
        if self.path == "/elsewhere":
            self.send_header("Location", "http://other.test/")
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"answer")

    do_GET = do_POST = _answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


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
