"""A package index on loopback, and tiny packages to put into it."""

import base64
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType

SIMPLE_JSON = "application/vnd.pypi.simple.v1+json"


@dataclass
class Page:
    body: bytes
    kind: str = "application/octet-stream"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    gate: threading.Event | None = None
    """If given, the answer is sent only after it is set."""


class LocalIndex:
    """Serves `pages` by path and records the requests."""

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        self.port = port
        self.url = f"http://{address}:{port}"
        self.pages: dict[str, Page] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.asked = threading.Event()
        self._others: dict[str, LocalIndex] = {}

    def under(self, host: str) -> "LocalIndex":
        """Another index at the same address and port, which is served to those who ask for it by this name."""
        return self._others.setdefault(f"{host}:{self.port}", LocalIndex(self.port, host))

    def named(self, host: str) -> "LocalIndex":
        """The index for a request with this `Host`."""
        return self._others.get(host, self)

    def add_project(
        self,
        name: str,
        files: dict[str, bytes],
        host: "LocalIndex",
        *,
        html: bool = False,
        sizes: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Adds a page of Python's simple API; its files and their metadata are on another server.

        `sizes` are what the page says of files, if it is not true.
        """
        entries = []
        for file, content in files.items():
            host.pages[f"/packages/{file}"] = Page(content)
            if file.endswith(".whl"):
                host.pages[f"/packages/{file}.metadata"] = Page(_metadata_of(content))
            digest = hashlib.sha256(content).hexdigest()
            entries.append((file, f"{host.url}/packages/{file}", digest, file.endswith(".whl")))
        if html:
            links = "\n".join(
                f'<a href="{url}#sha256={digest}" data-requires-python="&gt;=3.8"'
                f"{' data-core-metadata' + chr(61) + chr(34) + 'true' + chr(34) if wheel else ''}>{file}</a><br>"
                for file, url, digest, wheel in entries
            )
            page = Page(f"<!DOCTYPE html><html><body>{links}</body></html>".encode(), "text/html; charset=utf-8")
        else:
            found = [
                {
                    "filename": file,
                    "url": url,
                    "hashes": {"sha256": digest},
                    "core-metadata": wheel,
                    "size": sizes.get(file, len(files[file])),
                }
                for file, url, digest, wheel in entries
            ]
            page = Page(
                json.dumps({"meta": {"api-version": "1.0"}, "name": name, "files": found}).encode(), SIMPLE_JSON
            )
        self.pages[f"/simple/{name}/"] = page

    def add_npm(self, name: str, host: "LocalIndex", *needed: str, below: str = "", postinstall: str = "") -> None:
        """Adds package metadata here and its tarball to `host`, both below a path; `postinstall` runs on install.

        The package has a program of its name, which prints what its module is.
        """
        manifest = {"name": name, "version": "1.0.0", "main": "index.js", "dependencies": dict.fromkeys(needed, "*")}
        manifest["bin"] = {name.rpartition("/")[2]: "show.js"}
        files = {"index.js": "module.exports = 42\n"}
        files["show.js"] = "#!/usr/bin/env node\nconsole.log(require('./index.js'))\n"
        if postinstall:
            manifest["scripts"] = {"postinstall": "node postinstall.js"}
            files["postinstall.js"] = postinstall
        files["package.json"] = json.dumps(manifest)
        tarball = tar({f"package/{path}": text for path, text in files.items()})
        path = f"{below}/{name}/-/package-1.0.0.tgz"
        host.pages[path] = Page(tarball)
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(tarball).digest()).decode()
        dist = {"tarball": f"{host.url}{path}", "integrity": integrity}
        page = {"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {**manifest, "dist": dist}}}
        self.pages[f"{below}/" + name.replace("/", "%2f")] = Page(json.dumps(page).encode(), "application/json")


@contextmanager
def local_index(address: str = "127.0.0.1") -> Iterator[LocalIndex]:
    server = ThreadingHTTPServer((address, 0), _Handler)
    server.index = LocalIndex(server.server_address[1], address)  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.index  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Makes closing fast: no connection stays open after its answer.
    close_connection = True

    def do_GET(self) -> None:
        index: LocalIndex = self.server.index.named(self.headers.get("host", ""))  # type: ignore[attr-defined]
        index.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        index.asked.set()
        page = index.pages.get(self.path, Page(b"no such page\n", "text/plain", 404))
        if page.gate is not None:
            page.gate.wait(10)
        body, status, headers = page.body, page.status, dict(page.headers)
        wanted = self.headers.get("range")
        if wanted and status == 200:
            first, last = (int(part) for part in wanted.removeprefix("bytes=").split("-"))
            headers["Content-Range"] = f"bytes {first}-{last}/{len(body)}"
            body, status = body[first : last + 1], 206
        if "ETag" in headers and self.headers.get("if-none-match") == headers["ETag"]:
            body, status = b"", 304
        try:
            self.send_response(status)
            for name, value in {**headers, "Content-Type": page.kind, "Connection": "close"}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)
        except OSError:
            self.close_connection = True

    do_HEAD: Callable[["_Handler"], None] = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


def metadata(name: str, version: str = "1.0", *needed: str) -> bytes:
    lines = "".join(f"Requires-Dist: {one}\n" for one in needed)
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{lines}".encode()


def _metadata_of(content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return archive.read(next(path for path in archive.namelist() if path.endswith(".dist-info/METADATA")))


def wheel(
    name: str, version: str = "1.0", *needed: str, module: str = "", further: Mapping[str, bytes] | None = None
) -> dict[str, bytes]:
    """A wheel with one module, which has the same name unless another is given, and defines `ANSWER`; it needs others.

    It has a program of its name, which prints that, and `further` files.
    """
    buffer = io.BytesIO()
    files = {
        **(further or {}),
        f"{module or name}.py": b"ANSWER = 42\n\ndef show():\n    print(ANSWER)\n",
        f"{name}-{version}.dist-info/entry_points.txt": f"[console_scripts]\n{name} = {module or name}:show\n".encode(),
        f"{name}-{version}.dist-info/METADATA": metadata(name, version, *needed),
        f"{name}-{version}.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = f"{name}-{version}.dist-info/RECORD"
    files[record] = "".join(f"{path},,\n" for path in (*files, record)).encode()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return {f"{name}-{version}-py3-none-any.whl": buffer.getvalue()}


def sdist(name: str, code: str = "") -> dict[str, bytes]:
    """A source archive that builds its wheel without any other package, and runs `code` before that."""
    (built, content), *_ = wheel(name).items()
    backend = (
        f"{code}\nimport base64, pathlib\n"
        "def build_wheel(folder, settings=None, metadata=None):\n"
        f"    pathlib.Path(folder, {built!r}).write_bytes(base64.b64decode({base64.b64encode(content)!r}))\n"
        f"    return {built!r}\n"
    )
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    root = f"{name}-1.0"
    files = {
        f"{root}/PKG-INFO": metadata(name).decode(),
        f"{root}/backend.py": backend,
        f"{root}/pyproject.toml": project,
    }
    return {f"{name}-1.0.tar.gz": tar(files)}


def tar(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()
