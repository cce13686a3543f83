"""Which servers are alive: each renews a lease in its namespace, and pods of a server without a lease have no owner."""

import contextlib
from collections.abc import Set
from datetime import UTC, datetime, timedelta

import anyio

from ...base.errors import Unavailable
from .api import Api, Json, Refused

SERVER = "llm-sandbox-mcp.server"
"""The label that names the server of a pod, and of a lease."""

_SECONDS = 120
"""How long a lease lasts without being renewed; after that, any server can remove its server's pods."""
_BEAT = 15.0
_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"


class Leases:
    """The leases of a namespace, of which one is this server's own."""

    def __init__(self, api: Api, server: str) -> None:
        self._api = api
        self._server = server

    async def take(self) -> None:
        """Makes this server's lease; raises `Refused`."""
        lease: Json = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._server, "labels": {SERVER: self._server}},
            "spec": {"holderIdentity": self._server, "leaseDurationSeconds": _SECONDS, "renewTime": self._now()},
        }
        await self._api.call("POST", self._path, body=lease)

    async def keep(self) -> None:
        """Renews the lease forever; if that fails, tries again, since a cluster can be unreachable for a moment."""
        while True:
            await anyio.sleep(_BEAT)
            try:
                change: list[Json] = [{"op": "replace", "path": "/spec/renewTime", "value": self._now()}]
                await self._api.call("PATCH", f"{self._path}/{self._server}", body=change)
            except Refused as refused:
                if refused.status == 404:
                    await self._retake()
            except Unavailable:
                pass

    async def _retake(self) -> None:
        with contextlib.suppress(Refused, Unavailable):  # the next beat tries again
            await self.take()

    async def give_up(self) -> None:
        """Removes this server's lease; raises `Refused`."""
        await self._api.call("DELETE", f"{self._path}/{self._server}")

    async def living(self) -> Set[str]:
        """The servers with a valid lease. Expired leases are removed, since their servers no longer can."""
        listed = await self._api.call("GET", self._path, [("labelSelector", SERVER)])
        alive = {lease["metadata"]["name"] for lease in listed["items"] if not self._over(lease["spec"])}
        for lease in listed["items"]:
            if lease["metadata"]["name"] not in alive:
                await self._remove(lease["metadata"])
        return alive

    async def _remove(self, metadata: Json) -> None:
        # Not if its server has renewed the lease since it was read.
        only = {"preconditions": {"resourceVersion": metadata["resourceVersion"]}}
        try:
            await self._api.call("DELETE", f"{self._path}/{metadata['name']}", body=only)
        except Refused as refused:
            if refused.status not in (404, 409):
                raise

    def _over(self, spec: Json) -> bool:
        renewed = datetime.strptime(spec["renewTime"], _FORMAT).replace(tzinfo=UTC)
        return renewed + timedelta(seconds=spec["leaseDurationSeconds"]) < self._api.now()

    def _now(self) -> str:
        return self._api.now().strftime(_FORMAT)

    @property
    def _path(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self._api.namespace}/leases"
