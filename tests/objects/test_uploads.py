"""What a store answers in the middle of an upload."""

import re
import secrets
import urllib.request

import anyio.to_thread
import pytest

from llm_sandbox_mcp.base.errors import StoreFailed
from llm_sandbox_mcp.state.objects import ObjectStore

from ..unit.state.test_stores import MIB, get
from .servers import BUCKET, ObjectServer

pytestmark = pytest.mark.anyio


async def test_parts_that_the_bucket_has_removed_are_an_error_by_name(
    on_moto: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = f"some/{secrets.token_hex(4)}"
    for name, value in on_moto.variables().items():
        monkeypatch.setenv(name, value)
    store = ObjectStore(on_moto.place(prefix))

    async def put() -> None:
        async with store.create("me", "geo") as sink:
            for _ in range(20):
                await sink.write(bytes(MIB))
            await anyio.to_thread.run_sync(_forget_uploads, on_moto, prefix)
            await sink.complete()

    with pytest.raises(StoreFailed, match="cannot be used"):
        await put()
    assert await get(store) is None


def _forget_uploads(server: ObjectServer, prefix: str) -> None:
    """As a rule of the bucket does, such as `AbortIncompleteMultipartUpload`."""
    with urllib.request.urlopen(f"{server.url}/{BUCKET}?uploads&prefix={prefix}/", timeout=60) as answer:
        found = re.findall("<UploadId>(.*?)</UploadId><Key>(.*?)</Key>", answer.read().decode())
    assert found
    for upload, key in found:
        place = f"{server.url}/{BUCKET}/{key}?uploadId={upload}"
        urllib.request.urlopen(urllib.request.Request(place, method="DELETE"), timeout=60).close()
