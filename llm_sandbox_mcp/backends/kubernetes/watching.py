"""The pods of one server, as the cluster reports them over one watch: without polling, and without requests per pod."""

from collections.abc import Callable, Mapping
from typing import Any

import anyio

from ...base.errors import EngineUnavailable, SandboxLost, StartFailed, Unavailable
from ...base.messages import Problem
from ...base.results import OnProgress
from .api import Api, Refused
from .failures import Failure, code_container, code_state, deleted, failure, forbidden, unscheduled

GRANT = "grant the permissions in configs/kubernetes/role.yaml: kubectl apply -k configs/kubernetes"
"""The next step for an operator if a permission is missing."""

REPORT_TIME = 4.0
"""Seconds for the cluster to report why a pod ended, after its connections ended, or to answer again."""

_PAUSE = 0.5
"""Seconds between two attempts to watch a cluster that does not answer."""
_TOO_OLD = 410


def of_name(name: str) -> tuple[str, str]:
    """The selector of a single pod."""
    return ("fieldSelector", f"metadata.name={name}")


class Watched:
    """The known state of one pod."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready = anyio.Event()
        """Set when its container runs, or when it is certain that it never will."""
        self.over = anyio.Event()
        """Set when it no longer runs."""
        self.on_over: Callable[[], None] = lambda: None
        """Called then; otherwise its user would notice only seconds later, when its connections end."""
        self.failure: Failure | None = None
        """Why it ended or never runs; None as long as nothing is wrong."""
        self.unscheduled: Failure | None = None
        """Why no node takes it for now."""
        self.unheard: Problem | None = None
        """Why the cluster reports nothing about it for now; None while the cluster reports."""
        self._changed = anyio.Event()
        self.container = ""
        """The name of its container that runs code, once it is known."""
        self.address = self.node = ""
        """The addresses of the pod and its node in the cluster's network."""

    def take(self, pod: Mapping[str, Any]) -> None:
        """Takes in what the cluster reports about it now."""
        status = pod.get("status") or {}
        self.address = status.get("podIP") or self.address
        self.node = status.get("hostIP") or self.node
        self.container = code_container(pod)
        self.unscheduled = unscheduled(pod)
        if found := failure(pod):
            self.fail(found)
        elif "running" in code_state(pod):
            self.ready.set()
        self._change()

    def fail(self, found: Failure) -> None:
        """Records that it has ended, or will never start."""
        if not self.over.is_set():
            self.failure = found
            self.over.set()
            self.ready.set()
            self._change()
            self.on_over()

    def hear(self, unheard: Problem | None = None) -> None:
        """Records that the cluster reports again or, with the reason, that it does not."""
        self.unheard = unheard
        self._change()

    async def started(self, seconds: float, node_timeout: float) -> None:
        """Returns once it runs; raises an error if it cannot run, or if no node takes it for so long.

        Raises `TimeoutError` if it does not run in so many seconds, without those in which no node takes it.
        """
        while not self.ready.is_set():
            unheard, unscheduled, began = self.unheard, self.unscheduled, anyio.current_time()
            with anyio.move_on_after(REPORT_TIME if unheard else node_timeout if unscheduled else seconds) as limit:
                await self._until(self._is_other(bool(unheard), bool(unscheduled)))
            if limit.cancelled_caught:
                if unheard:
                    raise EngineUnavailable(*unheard)
                if unscheduled:
                    raise unscheduled.at_start()
                raise TimeoutError
            took = anyio.current_time() - began
            seconds, node_timeout = (seconds, node_timeout - took) if unscheduled else (seconds - took, node_timeout)
        if self.failure:
            raise self.failure.at_start()

    def _is_other(self, unheard: bool, unscheduled: bool) -> Callable[[], bool]:
        """Whether it is ready, or its state is no longer this one."""
        return lambda: self.ready.is_set() or (bool(self.unheard), bool(self.unscheduled)) != (unheard, unscheduled)

    async def reported_failure(self, deadline: float) -> Failure | None:
        """How it failed; None if the cluster does not report this by then, or reports nothing for now."""
        with anyio.CancelScope(deadline=deadline):
            await self._until(lambda: self.failure is not None or bool(self.unheard))
        return self.failure

    async def never_used(self, lost: SandboxLost) -> Unavailable:
        """The error for a pod that was lost before any code ran in it."""
        if found := await self.reported_failure(anyio.current_time() + REPORT_TIME):
            return found.at_start()
        return EngineUnavailable(*self.unheard) if self.unheard else StartFailed(*lost.problem)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class Watch:
    """The watch of some pods; their owner runs `run` as a task."""

    def __init__(
        self, api: Api, selector: tuple[str, str], on_stranger: Callable[[str], None] = lambda _: None
    ) -> None:
        """`selector` is a parameter of the cluster's interface, such as `labelSelector`, and its value.

        `on_stranger` is called with pods that nobody expects: the cluster made them after the attempt was abandoned.
        """
        self._api = api
        self._on_stranger = on_stranger
        self._selector = selector
        self._pods: dict[str, Watched] = {}
        self._version = ""
        self._moved = anyio.Event()
        """Set and replaced at each event."""

    async def tell(self, on_progress: OnProgress) -> None:
        """Reports, until it is cancelled, that no node takes a pod that is being made."""
        told = False
        while True:
            waiting = [one.unscheduled for one in self._pods.values() if one.unscheduled and not one.ready.is_set()]
            if waiting and not told:
                await on_progress(f"waiting for a node: {waiting[0].problem.cause}")
            told = bool(waiting)
            await self._moved.wait()

    def expect(self, name: str) -> Watched:
        """Adds a pod that is going to be made; call it before that."""
        watched = self._pods[name] = Watched(name)
        return watched

    def forget(self, name: str) -> None:
        """Drops a pod that is no longer of interest."""
        self._pods.pop(name, None)

    async def begin(self) -> None:
        """Lists the pods: finds the version to watch from, and the current state of each pod; raises `Refused`."""
        listed = await self._api.call("GET", self._path, [self._selector])
        self._version = listed["metadata"]["resourceVersion"]
        found = {pod["metadata"]["name"]: pod for pod in listed["items"]}
        for name, watched in [*self._pods.items()]:
            watched.hear()
            if name in found:
                watched.take(found[name])
            elif watched.ready.is_set():
                # Not a pod that is being made: it was deleted while there was no watch.
                watched.fail(deleted(name))
        for name in {*found} - {*self._pods}:
            self._on_stranger(name)

    async def run(self) -> None:
        """Takes in events forever; when the cluster ends the stream, it starts a new watch."""
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
        if status == _TOO_OLD:  # the version to watch from is too old; there is a newer one
            return
        denied = status in (401, 403)
        if denied:
            why = Problem(f"kubernetes does not allow this server to watch pods: {error}", GRANT)
        elif isinstance(error, Refused):
            why = Problem(f"kubernetes does not report on pods: {error}", "check the cluster")
        else:
            why = error.problem
        for watched in self._pods.values():
            watched.hear(unheard=why)
            if denied and not watched.ready.is_set():
                watched.fail(forbidden(why))  # pods that already run can go on

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self._api.namespace}/pods"

    def _take(self, kind: str, pod: Mapping[str, Any]) -> None:
        metadata = pod["metadata"]
        self._version = metadata["resourceVersion"]
        self._moved.set()
        self._moved = anyio.Event()
        watched = self._pods.get(metadata["name"])
        if watched is None:
            if kind == "ADDED":
                self._on_stranger(metadata["name"])
        elif kind == "DELETED":
            watched.fail(failure(pod) or deleted(watched.name))
        else:
            watched.take(pod)
