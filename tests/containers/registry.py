"""A read-only image registry on loopback with one image: the pull half of the OCI distribution protocol."""

import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


@contextmanager
def registry(name: str, saved: bytes) -> Iterator[str]:
    """Serves an image, as an engine exports it, under a name and the tag `latest`; gives the registry's address."""
    blobs, manifest = _blobs_and_manifest(saved)
    digest = _digest(manifest)
    there = {f"/v2/{name}/blobs/{key}": ("application/octet-stream", content) for key, content in blobs.items()}
    there |= {f"/v2/{name}/manifests/{key}": (_MANIFEST, manifest) for key in ("latest", digest)}
    there["/v2/"] = ("application/json", b"{}")
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(there)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def _blobs_and_manifest(saved: bytes) -> tuple[Mapping[str, bytes], bytes]:
    """The blobs of an exported image, by digest, and its manifest."""
    with tarfile.open(fileobj=io.BytesIO(saved)) as archive:

        def read(member: str) -> bytes:
            file = archive.extractfile(member)
            assert file is not None
            return file.read()

        (entry,) = json.loads(read("manifest.json"))
        config, layers = read(entry["Config"]), [read(layer) for layer in entry["Layers"]]
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": {"mediaType": _CONFIG, "size": len(config), "digest": _digest(config)},
        "layers": [{"mediaType": _LAYER, "size": len(layer), "digest": _digest(layer)} for layer in layers],
    }
    return {_digest(blob): blob for blob in (config, *layers)}, json.dumps(manifest).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _handler(there: Mapping[str, tuple[str, bytes]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            kind, content = there.get(self.path, ("application/json", b"{}"))
            self.send_response(200 if self.path in there else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *words: object) -> None:
            """Logs nothing."""

    return Handler
