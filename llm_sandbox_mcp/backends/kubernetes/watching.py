"""The pods of one server, as the cluster tells of them over one watch: no poll, and nothing per pod."""

from collections.abc import Callable, Mapping
from typing import Any

import anyio

from ...errors import Unavailable
from .api import Api, Refused
from .manifest import CONTAINER

GRANT = "grant what configs/kubernetes/role.yaml lists: kubectl apply -k configs/kubernetes"
"""What an operator does who lacks a permission."""

_PAUSE = 0.5
"""Seconds between two attempts to watch a cluster that does not answer."""
_REASON = 300

# https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/images/types.go and kuberuntime's
_HOPELESS = {
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ImageInspectError",
    "ErrImageNeverPull",
    "RegistryUnavailable",
    "SignatureValidationFailed",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "StartError",
    "CrashLoopBackOff",
}
"""Why a container waits that will not start by waiting."""

_IMAGE = {name for name in _HOPELESS if "Image" in name or name in ("RegistryUnavailable", "SignatureValidationFailed")}


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
        self.failure = ""
        """Why, "cause; next step"; empty as long as nothing is wrong."""
        self.address = self.node = ""
        """Where it and its node are in the cluster's network."""

    def take(self, pod: Mapping[str, Any]) -> None:
        """What the cluster says of it now."""
        status = pod.get("status") or {}
        self.address = status.get("podIP") or self.address
        self.node = status.get("hostIP") or self.node
        if reason := failure(pod):
            self.fail(reason)
        elif "running" in _container(status):
            self.ready.set()

    def fail(self, reason: str) -> None:
        """It has ended, or will never start."""
        if not self.over.is_set():
            self.failure = reason
            self.over.set()
            self.ready.set()
            self.on_over()


class Watch:
    """The watch of one server's pods; `run` is a task of its backend's."""

    def __init__(self, api: Api, selector: str, on_stranger: Callable[[str], None]) -> None:
        """`on_stranger` is told of pods that nobody expects: made by the cluster after all, once they were given up."""
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
        listed = await self._api.call("GET", self._path, [("labelSelector", self._selector)])
        self._version = listed["metadata"]["resourceVersion"]
        there = {pod["metadata"]["name"]: pod for pod in listed["items"]}
        for name, watched in [*self._pods.items()]:
            if name in there:
                watched.take(there[name])
            elif watched.ready.is_set():
                # Not one that is being made: it went while nobody watched.
                watched.fail(_deleted(name))

    async def run(self) -> None:
        """Takes in events for ever; where the cluster ends the stream it is asked anew."""
        while True:
            try:
                query = [("labelSelector", self._selector), ("resourceVersion", self._version)]
                async with self._api.watch(self._path, query) as events:
                    async for event in events:
                        self._take(event["type"], event["object"])
                continue
            except Refused as refused:
                # Otherwise what it was to begin with is too old.
                if refused.status in (401, 403):
                    self._blind(refused)
                await anyio.sleep(_PAUSE)
            except Unavailable:
                await anyio.sleep(_PAUSE)
            try:
                await self.begin()
            except (Refused, Unavailable):
                await anyio.sleep(_PAUSE)

    def _blind(self, refused: Refused) -> None:
        for watched in self._pods.values():
            watched.fail(f"kubernetes does not allow to watch pods: {refused}; {GRANT}")

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
            watched.fail(failure(pod) or _deleted(watched.name))
        else:
            watched.take(pod)


def failure(pod: Mapping[str, Any]) -> str:
    """Why a pod will not run, or runs no more, with what the cluster says of it; empty while it may."""
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    state = _container(status)
    image = pod["spec"]["containers"][0].get("image", "")
    waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
    if status.get("reason") and (status.get("phase") == "Failed" or status["reason"] == "NodeLost"):
        return _said(f"pod {name} was ended", status["reason"], status.get("message"), _advice(status["reason"]))
    if waiting.get("reason") in _HOPELESS:
        if waiting["reason"] in _IMAGE:
            advice = "check kubernetes.image, kubernetes.pull and kubernetes.pull_secrets in the profile"
            return _said(
                f"image {image} of pod {name} cannot be had", waiting["reason"], waiting.get("message"), advice
            )
        advice = "check kubernetes.pod_manifest in the profile, and the image"
        return _said(f"pod {name} of image {image} cannot start", waiting["reason"], waiting.get("message"), advice)
    if ended:
        reason = ended.get("reason") or f"exit code {ended.get('exitCode')}"
        return _said(f"pod {name} ended", reason, ended.get("message"), _advice(reason))
    conditions = {condition.get("type"): condition for condition in status.get("conditions") or ()}
    scheduled = conditions.get("PodScheduled") or {}
    if scheduled.get("reason") == "Unschedulable":
        advice = "add nodes, or lower limits.memory and limits.cpus in the profile"
        return _said(f"no node takes pod {name}", "Unschedulable", scheduled.get("message"), advice)
    if _lost(pod, conditions):
        node = pod["spec"].get("nodeName", "its node")
        return _said(f"pod {name} was lost", "NodeLost", f"{node} is silent", _advice("NodeLost"))
    return _deleted(name) if pod["metadata"].get("deletionTimestamp") else ""


def _lost(pod: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether its node is silent: then the pod is not ready by what the cluster says, but its containers still are."""
    if pod["spec"].get("readinessGates"):
        return False
    of_pod, of_containers = (conditions.get(kind, {}).get("status") for kind in ("Ready", "ContainersReady"))
    return of_containers == "True" and of_pod in ("False", "Unknown")


def _container(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state of the container that runs the code: one of waiting, running, terminated."""
    for container in status.get("containerStatuses") or ():
        if container.get("name") == CONTAINER:
            state: Mapping[str, Any] = container.get("state") or {}
            return state
    return {}


def _said(what: str, reason: str, message: str | None, advice: str) -> str:
    told = " ".join(str(message or "").replace(";", ",").split())[:_REASON]
    return f"{what}: {reason}{', ' + told if told else ''}; {advice}"


def _advice(reason: str) -> str:
    if reason == "OOMKilled":
        return "raise limits.memory in the profile, or have the code use less"
    if reason == "Evicted":
        return "give its node more room, or lower limits.memory and limits.disk in the profile"
    if reason in ("NodeLost", "NodeShutdown", "Terminated", "Shutdown", "NodeAffinity"):
        return "see to the node, and open a new session"
    return "open a new session"


def _deleted(name: str) -> str:
    return f"pod {name} was deleted; open a new session"
