"""The pods of one server, as the cluster tells of them over one watch: no poll, and nothing per pod."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import anyio

from ...errors import Unavailable
from .api import Api, Refused
from .failures import Failure, code_container, code_state, deleted, failure

GRANT = "grant what configs/kubernetes/role.yaml lists: kubectl apply -k configs/kubernetes"
"""What an operator does who lacks a permission."""

_PAUSE = 0.5
"""Seconds between two attempts to watch a cluster that does not answer."""


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

    def fail(self, found: Failure) -> None:
        """It has ended, or will never start."""
        if not self.over.is_set():
            self.failure = found
            self.over.set()
            self.ready.set()
            self._change()
            self.on_over()

    def lose_sight(self, why: str) -> None:
        """Nothing is heard of it until the cluster tells again."""
        self.unheard = why
        self._change()

    async def until_told(self) -> None:
        """Returns once it is known what became of it, or that this will not be told for now."""
        while not self.failure and not self.unheard:
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
        """Finds out from when on to watch; raises what the cluster does not allow."""
        listed = await self._api.call("GET", self._path, [self._selector])
        self._version = listed["metadata"]["resourceVersion"]
        there = {pod["metadata"]["name"]: pod for pod in listed["items"]}
        for name, watched in [*self._pods.items()]:
            watched.unheard = ""
            if name in there:
                watched.take(there[name])
            elif watched.ready.is_set():
                # Not one that is being made: it went while nobody watched.
                watched.fail(deleted(name))

    async def run(self) -> None:
        """Takes in events for ever; where the cluster ends the stream it is asked anew."""
        while True:
            try:
                query = [self._selector, ("resourceVersion", self._version)]
                async with self._api.watch(self._path, query) as events:
                    async for event in events:
                        self._take(event["type"], event["object"])
                continue
            except Refused as refused:
                # Otherwise what it was to begin with is too old.
                if refused.status in (401, 403):
                    self._forbidden(f"kubernetes does not allow to watch pods: {refused}; {GRANT}")
            except Unavailable as error:
                self._lose_sight(str(error))
            await anyio.sleep(_PAUSE)
            with suppress(Refused, Unavailable):
                await self.begin()

    def _forbidden(self, why: str) -> None:
        """Nothing will be heard of those that are being made; those that run may go on."""
        self._lose_sight(why)
        for watched in self._pods.values():
            if not watched.ready.is_set():
                watched.fail(Failure("Forbidden", why))

    def _lose_sight(self, why: str) -> None:
        for watched in self._pods.values():
            watched.lose_sight(why)

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
