"""Who lives is told by the cluster's clock, not by those of the machines that servers run on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client import Configuration

from llm_sandbox_mcp.backends.kubernetes.api import Api
from llm_sandbox_mcp.backends.kubernetes.leases import Leases

pytestmark = pytest.mark.anyio

NAMESPACE = "sandboxes"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Cluster:
    """Keeps leases, on a clock of its own."""

    def __init__(self, off: timedelta) -> None:
        self.off = off
        self.leases: dict[str, Any] = {}

    async def answer(self, request: web.Request) -> web.Response:
        name = request.path.rpartition("/")[2]
        if request.method == "POST":
            lease = await request.json()
            lease["metadata"]["resourceVersion"] = "1"
            self.leases[lease["metadata"]["name"]] = lease
        elif request.method == "DELETE":
            del self.leases[name]
        date = format_datetime(self.now(), usegmt=True)
        return web.json_response({"items": [*self.leases.values()]}, headers={"Date": date})

    def now(self) -> datetime:
        return datetime.now(UTC) + self.off


@asynccontextmanager
async def asking(cluster: Cluster) -> AsyncIterator[Api]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", cluster.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    configuration = Configuration()
    configuration.host = "http://{}:{}".format(*runner.addresses[0][:2])

    async def renew() -> None:
        raise AssertionError("nobody asked for credentials")

    api = Api(configuration, NAMESPACE, renew)
    try:
        yield api
    finally:
        await api.aclose()
        await runner.cleanup()


@pytest.mark.parametrize("hours", [-5, 0, 5])
async def test_a_server_lives_whatever_the_clock_of_who_asks(hours: int) -> None:
    cluster = Cluster(timedelta(hours=hours))
    async with asking(cluster) as api, asking(cluster) as other:
        assert await Leases(api, "asks").living() == set()
        await other.call("GET", "/version")
        await Leases(other, "lives").take()
        renewed = datetime.strptime(cluster.leases["lives"]["spec"]["renewTime"], "%Y-%m-%dT%H:%M:%S.%f%z")
        assert abs(renewed - cluster.now()) < timedelta(minutes=1)
        assert await Leases(api, "asks").living() == {"lives"}
        cluster.off += timedelta(minutes=3)
        assert await Leases(api, "asks").living() == set()
        assert cluster.leases == {}
