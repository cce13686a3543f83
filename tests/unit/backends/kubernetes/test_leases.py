"""Which servers are alive is decided by the cluster's clock, not by the clocks of the servers' machines."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import anyio
import pytest
from aiohttp import web
from kubernetes.aio.client import Configuration

from llm_sandbox_mcp.backends.kubernetes import leases
from llm_sandbox_mcp.backends.kubernetes.api import Api
from llm_sandbox_mcp.backends.kubernetes.leases import Leases

pytestmark = pytest.mark.anyio

NAMESPACE = "sandboxes"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Cluster:
    """Stores leases, and has its own clock."""

    def __init__(self, off: timedelta) -> None:
        self.off = off
        self.leases: dict[str, Any] = {}
        self.away = False
        """Whether it refuses every request."""
        self.changed_meanwhile = False
        """Whether every lease has changed by the time that it is to be removed."""
        self.renewed = 0
        self._news = anyio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        name = request.path.rpartition("/")[2]
        if self.away:
            self._notify()
            return self._response(500, reason="InternalError")
        if request.method == "POST":
            lease = await request.json()
            lease["metadata"]["resourceVersion"] = "1"
            self.leases[lease["metadata"]["name"]] = lease
        elif request.method == "PATCH":
            if name not in self.leases:
                return self._response(404, reason="NotFound")
            (change,) = await request.json()
            assert (change["op"], change["path"]) == ("replace", "/spec/renewTime")
            self.leases[name]["spec"]["renewTime"] = change["value"]
            self.renewed += 1
        elif request.method == "DELETE" and self.changed_meanwhile:
            assert (await request.json())["preconditions"] == {"resourceVersion": "1"}
            return self._response(409, reason="Conflict")
        elif request.method == "DELETE":
            del self.leases[name]
        self._notify()
        return self._response(200, items=[*self.leases.values()])

    def _response(self, status: int, **words: object) -> web.Response:
        date = format_datetime(self.now(), usegmt=True)
        return web.json_response(words, status=status, headers={"Date": date})

    def _notify(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Returns once the condition is true; it is checked at each request."""
        with anyio.fail_after(30):
            while not condition():
                await self._news.wait()

    async def until_renewed(self, times: int) -> None:
        before = self.renewed
        await self.until(lambda: self.renewed >= before + times)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.off


@asynccontextmanager
async def connected(cluster: Cluster) -> AsyncIterator[Api]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", cluster.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    configuration = Configuration()
    configuration.host = "http://{}:{}".format(*runner.addresses[0][:2])

    async def renew() -> None:
        raise AssertionError("the cluster did not require credentials")

    api = Api(configuration, NAMESPACE, renew)
    try:
        yield api
    finally:
        await api.aclose()
        await runner.cleanup()


@pytest.mark.parametrize("hours", [-5, 0, 5])
async def test_a_server_is_alive_whatever_the_clock_of_the_server_that_asks(hours: int) -> None:
    cluster = Cluster(timedelta(hours=hours))
    async with connected(cluster) as api, connected(cluster) as other:
        assert await Leases(api, "asks").living() == set()
        await other.call("GET", "/version")
        await Leases(other, "lives").take()
        renewed = datetime.strptime(cluster.leases["lives"]["spec"]["renewTime"], "%Y-%m-%dT%H:%M:%S.%f%z")
        assert abs(renewed - cluster.now()) < timedelta(minutes=1)
        assert await Leases(api, "asks").living() == {"lives"}
        cluster.off += timedelta(minutes=3)
        assert await Leases(api, "asks").living() == set()
        assert cluster.leases == {}


@asynccontextmanager
async def kept(cluster: Cluster, api: Api) -> AsyncIterator[None]:
    """A server that takes its lease and renews it."""
    mine = Leases(api, "mine")
    await mine.take()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mine.keep)
        yield
        tasks.cancel_scope.cancel()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "_BEAT", 0.01)


@pytest.mark.usefixtures("quick")
async def test_a_lease_is_renewed_as_long_as_its_server_is_alive() -> None:
    cluster = Cluster(timedelta())
    async with connected(cluster) as api, kept(cluster, api):
        for _ in range(3):
            # Longer than a lease lasts without renewal.
            cluster.off += timedelta(minutes=3)
            # The first renewal may still carry the old time; its answer gives the server the new one.
            await cluster.until_renewed(2)
            assert await Leases(api, "asks").living() == {"mine"}


@pytest.mark.usefixtures("quick")
async def test_a_lease_that_was_removed_is_taken_again() -> None:
    cluster = Cluster(timedelta())
    async with connected(cluster) as api, kept(cluster, api):
        for _ in range(2):
            cluster.leases.clear()
            await cluster.until(lambda: "mine" in cluster.leases)
        await cluster.until_renewed(1)


@pytest.mark.usefixtures("quick")
async def test_a_cluster_that_is_away_for_a_while_is_called_again() -> None:
    cluster = Cluster(timedelta())
    async with connected(cluster) as api, kept(cluster, api):
        cluster.away = True
        refusals = 0

        def refused() -> bool:
            nonlocal refusals
            refusals += 1
            return refusals > 3

        await cluster.until(refused)
        cluster.leases.clear()
        cluster.away = False
        await cluster.until(lambda: "mine" in cluster.leases)


async def test_a_lease_that_was_renewed_since_it_was_read_is_not_removed() -> None:
    cluster = Cluster(timedelta())
    async with connected(cluster) as api:
        await Leases(api, "slow").take()
        cluster.off += timedelta(minutes=3)
        cluster.changed_meanwhile = True
        assert await Leases(api, "asks").living() == set()
        assert {*cluster.leases} == {"slow"}
