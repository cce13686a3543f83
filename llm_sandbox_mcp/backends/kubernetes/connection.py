"""The connection to a cluster, found and opened when it is first needed, with a lease and a watch for its lifetime."""

import contextlib
from collections.abc import Mapping
from functools import partial

import anyio
from anyio.abc import TaskGroup
from kubernetes.aio.client import Configuration

from ...base.errors import SandboxError
from .api import Api, Refused
from .finding import find_cluster
from .leases import SERVER, Leases
from .pod import Pod
from .refusals import as_error
from .watching import Watch

_GIVE_UP = 5.0
"""Seconds for giving up the lease; if that takes longer, the lease expires."""


class Connection:
    """One cluster, once it answers; `leases` and `watch` are set once `api()` has returned."""

    leases: Leases
    watch: Watch

    def __init__(
        self, kubeconfig: str, context: str, namespace: str, environ: Mapping[str, str], server: str, tasks: TaskGroup
    ) -> None:
        """`tasks` runs the lease's heartbeat and the watch."""
        self._find = partial(find_cluster, kubeconfig, context, environ)
        self._namespace = namespace
        self._server = server
        self._tasks = tasks
        self._connecting = anyio.Lock()
        self._failure: SandboxError | None = None
        self._failed_at = 0.0
        self._api: Api | None = None

    async def api(self) -> Api:
        """The API of the cluster; every call tries to connect until it answers, since it may be started later."""
        if self._api is None:
            asked_at = anyio.current_time()
            async with self._connecting:
                # A failure of another task meanwhile applies to all tasks that waited for it.
                if self._failure and self._failed_at > asked_at:
                    raise self._failure
                if self._api is None:
                    self._api = await self._connect()
        return self._api

    async def aclose(self) -> None:
        """Gives up the lease, within 5 s, and closes the connections to the cluster."""
        if self._api is not None:
            with anyio.move_on_after(_GIVE_UP, shield=True), contextlib.suppress(SandboxError, Refused):
                await self.leases.give_up()
            with anyio.CancelScope(shield=True):
                await self._api.aclose()

    async def _connect(self) -> Api:
        configuration = Configuration()

        async def renew() -> None:
            await self._find(configuration)

        try:
            namespace = await self._find(configuration)
            api = Api(configuration, self._namespace or namespace or "default", renew)
            try:
                await self._begin(api)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await api.aclose()
                raise
        except SandboxError as error:
            self._failure, self._failed_at = error, anyio.current_time()
            raise
        return api

    async def _begin(self, api: Api) -> None:
        self.leases = Leases(api, self._server)
        self.watch = Watch(api, ("labelSelector", f"{SERVER}={self._server}"), partial(self._remove_stranger, api))
        try:
            # The answer contains the cluster's time, which the lease needs.
            await api.call("GET", "/version")
            await self.leases.take()
            await self.watch.begin()
        except Refused as refused:
            raise as_error(refused, "make a lease and list pods", api) from refused
        self._tasks.start_soon(self.leases.keep)
        self._tasks.start_soon(self.watch.run)

    def _remove_stranger(self, api: Api, name: str) -> None:
        Pod(api, name, self._tasks).remove_soon()
