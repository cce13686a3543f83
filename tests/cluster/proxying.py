"""A reverse proxy in front of the cluster's API that refuses long request lines, as most proxies do, and counts bytes."""

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import anyio
from aiohttp import web
from aiohttp.web_request import BaseRequest

_LINE = 8000
"""Maximum bytes of a request line."""


@dataclass
class Proxy:
    """A running proxy."""

    url: str = ""
    sent: int = 0
    """Bytes that the websockets to the cluster have got."""

    def write_kubeconfig(self, folder: Path) -> str:
        """Writes a kubeconfig that leads to the proxy, and returns its path."""
        path = folder / "kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "proxy", "cluster": {"server": self.url}}],
            "users": [{"name": "nobody", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "nobody"}}],
            "current-context": "proxy",
        }
        path.write_text(json.dumps(config), encoding="utf-8")
        return str(path)


@asynccontextmanager
async def proxied(configuration: Any) -> AsyncIterator[Proxy]:
    """A proxy, on loopback, to the cluster of a configuration of the package `kubernetes`, as its user."""
    proxy = Proxy()
    trusted = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        trusted.load_cert_chain(configuration.cert_file, configuration.key_file)
    connector = aiohttp.TCPConnector(limit=0, ssl=trusted)
    credentials = {setting["key"]: setting["value"] for setting in configuration.auth_settings().values()}
    async with aiohttp.ClientSession(configuration.host, connector=connector, headers=credentials) as cluster:

        async def answer(request: BaseRequest) -> web.StreamResponse:
            headers = {name: request.headers[name] for name in ("Accept", "Content-Type") if name in request.headers}
            if request.headers.get("upgrade", "").lower() == "websocket":
                return await _pass_on(request, cluster, proxy)
            body = await request.read() or None
            async with cluster.request(request.method, request.rel_url, headers=headers, data=body) as theirs:
                ours = web.StreamResponse(status=theirs.status, headers={"Content-Type": theirs.content_type})
                await ours.prepare(request)
                async for part in theirs.content.iter_any():
                    await ours.write(part)
            return ours

        runner = web.ServerRunner(
            web.Server(answer, handler_cancellation=True, max_line_size=_LINE), shutdown_timeout=0.1
        )
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            proxy.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield proxy
        finally:
            await runner.cleanup()


async def _pass_on(request: BaseRequest, cluster: aiohttp.ClientSession, proxy: Proxy) -> web.WebSocketResponse:
    wanted = [word.strip() for word in request.headers["sec-websocket-protocol"].split(",")]
    async with cluster.ws_connect(request.rel_url, protocols=wanted, max_msg_size=0) as theirs:
        ours = web.WebSocketResponse(protocols=[str(theirs.protocol)], max_msg_size=0)
        await ours.prepare(request)

        async def copy(source: Any, target: Any) -> None:
            async for message in source:
                proxy.sent += len(message.data) if source is ours else 0
                await target.send_bytes(message.data)
            await target.close()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(copy, ours, theirs)
            tasks.start_soon(copy, theirs, ours)
    return ours
