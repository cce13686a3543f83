"""The pods of one server, as the cluster tells of them over one watch: no poll, and nothing per pod."""

from collections.abc import Callable, Mapping
from typing import Any

import anyio

from ...errors import EngineUnavailable, SandboxLost, StartFailed, Unavailable
from .api import Api, Refused
from .failures import Failure, code_container, code_state, deleted, failure, forbidden

GRANT = "grant what configs/kubernetes/role.yaml lists: kubectl apply -k configs/kubernetes"
"""What an operator does who lacks a permission."""

TOLD = 4.0
"""Seconds for the cluster to tell why a pod ended, whose connections end first, or to be back where it is away."""

_PAUSE = 0.5
"""Seconds between two attempts to watch a cluster that does not answer."""
_TOO_OLD = 410


def of_name(name: str) -> tuple[str, str]:
    """What selects one pod alone."""
    return ("fieldSelector", f"metadata.name={name}")


class Watched:
    """What is known of one pod."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready = anyio.Event()
        """Set when its container runs, or when it is certain that it never will."""
        self.over = anyio.Event()
        """Set when it runs no more."""
        self.on_over: Callable[[], None] = lambda: None
        """Called then; for what else would find out from the ends of its connections, some seconds later."""
        self.failure: Failure | None = None
        """Why; None as long as nothing is wrong."""
        self.unheard = ""
        """Why nothing is heard of it for now, "cause; next step"; empty while the cluster tells."""
        self._changed = anyio.Event()
        self.container = ""
        """The one of its containers that runs code, once it is known."""
        self.address = self.node = ""
        """Where it and its node are in the cluster's network."""

    def take(self, pod: Mapping[str, Any]) -> None:
        """What the cluster says of it now."""
        status = pod.get("status") or {}
        self.address = status.get("podIP") or self.address
        self.node = status.get("hostIP") or self.node
        self.container = code_container(pod)
        if found := failure(pod):
            self.fail(found)
        elif "running" in code_state(pod):
            self.ready.set()
            self._change()

    def fail(self, found: Failure) -> None:
        """It has ended, or will never start."""
        if not self.over.is_set():
            self.failure = found
            self.over.set()
            self.ready.set()
            self._change()
            self.on_over()

    def hear(self, unheard: str = "") -> None:
        """The cluster tells again; or it does not, and why."""
        self.unheard = unheard
        self._change()

    async def started(self) -> None:
        """Returns once it runs; raises what keeps it from that."""
        while not self.ready.is_set():
            if self.unheard:
                with anyio.move_on_after(TOLD) as away:
                    await self._until(lambda: self.ready.is_set() or not self.unheard)
                if away.cancelled_caught:
                    raise EngineUnavailable(self.unheard)
            await self._until(lambda: self.ready.is_set() or bool(self.unheard))
        if self.failure:
            raise self.failure.at_start()

    async def told(self, deadline: float) -> Failure | None:
        """What became of it; None where that is not told until then, or will not be for now."""
        with anyio.CancelScope(deadline=deadline):
            await self._until(lambda: self.failure is not None or bool(self.unheard))
        return self.failure

    async def never_used(self, lost: SandboxLost) -> Unavailable:
        """The error for one that was lost before any code ran in it."""
        if found := await self.told(anyio.current_time() + TOLD):
            return found.at_start()
        return EngineUnavailable(self.unheard) if self.unheard else StartFailed(str(lost))

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class Watch:
    """The watch of some pods; `run` is a task of whoever owns them."""

    def __init__(
        self, api: Api, selector: tuple[str, str], on_stranger: Callable[[str], None] = lambda _: None
    ) -> None:
        """`selector` is a parameter of the cluster's interface, such as `labelSelector`, and its value.

        `on_stranger` is told of pods that nobody expects: made by the cluster after all, once they were given up.
        """
        self._api = api
        self._on_stranger = on_stranger
        self._selector = selector
        self._pods: dict[str, Watched] = {}
        self._version = ""

    def expect(self, name: str) -> Watched:
        """A pod that is going to be made; to be called before it is."""
        watched = self._pods[name] = Watched(name)
        return watched

    def forget(self, name: str) -> None:
        """A pod that is of no interest any more."""
        self._pods.pop(name, None)

    async def begin(self) -> None:
        """Finds out from when on to watch, and what became of pods meanwhile; raises what the cluster refuses."""
        listed = await self._api.call("GET", self._path, [self._selector])
        self._version = listed["metadata"]["resourceVersion"]
        there = {pod["metadata"]["name"]: pod for pod in listed["items"]}
        for name, watched in [*self._pods.items()]:
            watched.hear()
            if name in there:
                watched.take(there[name])
            elif watched.ready.is_set():
                # Not one that is being made: it went while nobody watched.
                watched.fail(deleted(name))
        for name in {*there} - {*self._pods}:
            self._on_stranger(name)

    async def run(self) -> None:
        """Takes in events for ever; where the cluster ends the stream it is asked anew."""
        while True:
            try:
                query = [self._selector, ("resourceVersion", self._version)]
                async with self._api.watch(self._path, query) as events:
                    async for event in events:
                        self._take(event["type"], event["object"])
                continue
            except (Refused, Unavailable) as error:
                self._lose_touch(error)
            await self._begin_again()

    async def _begin_again(self) -> None:
        while True:
            await anyio.sleep(_PAUSE)
            try:
                return await self.begin()
            except (Refused, Unavailable) as error:
                self._lose_touch(error)

    def _lose_touch(self, error: Refused | Unavailable) -> None:
        status = error.status if isinstance(error, Refused) else 0
        if status == _TOO_OLD:  # what it was to begin with; there is a newer one
            return
        denied = status in (401, 403)
        why = str(error)
        if denied:
            why = f"kubernetes does not allow to watch pods: {error}; {GRANT}"
        elif status:
            why = f"kubernetes does not tell of pods: {error}; see to the cluster"
        for watched in self._pods.values():
            watched.hear(unheard=why)
            if denied and not watched.ready.is_set():
                watched.fail(forbidden(why))  # those that run already may go on

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self._api.namespace}/pods"

    def _take(self, kind: str, pod: Mapping[str, Any]) -> None:
        metadata = pod["metadata"]
        self._version = metadata["resourceVersion"]
        watched = self._pods.get(metadata["name"])
        if watched is None:
            if kind == "ADDED":
                self._on_stranger(metadata["name"])
        elif kind == "DELETED":
            watched.fail(failure(pod) or deleted(watched.name))
        else:
            watched.take(pod)
