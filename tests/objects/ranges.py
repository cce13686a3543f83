"""A proxy that gives a part of an object the status that it must have: rclone 1.75 answers with that of a whole one."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_PATIENCE = 30.0
_OWN = ("connection", "transfer-encoding", "content-length", "date", "server")
"""Headers that are not passed on, in lower case."""


@contextmanager
def right_ranges(url: str) -> Iterator[str]:
    """The address of a proxy of the server at `url`, which is otherwise as that is."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.behind = urlsplit(url).netloc  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # No connection stays open after its answer, so none is left after a test.
    close_connection = True

    def _pass_on(self) -> None:
        try:
            content = self.rfile.read(int(self.headers.get("content-length", 0)))
            # `Host` is what the client signed.
            with closing(HTTPConnection(self.server.behind, timeout=_PATIENCE)) as behind:  # type: ignore[attr-defined]
                behind.request(self.command, self.path, content, dict(self.headers.items()))
                answer = behind.getresponse()
                part = answer.status == 200 and answer.headers.get("content-range") and self.headers.get("range")
                self.send_response(206 if part else answer.status)
                body = answer.read()
                for name, value in answer.headers.items():
                    if name.lower() not in _OWN:
                        self.send_header(name, value)
                size = answer.headers.get("content-length", "0") if self.command == "HEAD" else str(len(body))
                self.send_header("Content-Length", size)
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(body)
        except OSError:  # either side has left
            self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass
