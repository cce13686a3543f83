"""Why a pod will never run, or no longer runs: the cluster's reports as errors of this package."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...base.errors import (
    EngineUnavailable,
    Evicted,
    ImageFailed,
    ImageMissing,
    NodeLost,
    OutOfMemory,
    SandboxLost,
    StartFailed,
    Unavailable,
    Unschedulable,
)
from ...base.messages import Problem
from .manifest import CONTAINER

_REASON = 300
"""Maximum characters of a cluster's message about one pod."""

# https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/images/types.go
_IMAGE: Mapping[str, type[StartFailed]] = {
    "ErrImagePull": ImageFailed,
    "ImagePullBackOff": ImageFailed,
    "InvalidImageName": ImageFailed,
    "ImageInspectError": ImageFailed,
    "ErrImageNeverPull": ImageMissing,
    "RegistryUnavailable": ImageFailed,
    "SignatureValidationFailed": ImageFailed,
}
"""Reasons of a container that waits because its image is not available."""
# https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/kuberuntime/kuberuntime_container.go
_HOPELESS = {
    *_IMAGE,
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "StartError",
    "CrashLoopBackOff",
}
"""Reasons of a container that waits but will never start."""
_OF_NODE = {
    "NodeLost",
    "NodeShutdown",
    "Terminated",
    "Shutdown",
    "NodeAffinity",
    "DeletionByTaintManager",
    "DeletionByDeviceTaintManager",
    "DeletionByPodGC",
}
"""Reasons of a pod that ends because its node is no longer available."""
# https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
_DISRUPTED = {"EvictionByEvictionAPI", "PreemptionByScheduler", "TerminationByKubelet", "Preempting", "Evicted"}
"""Reasons of a pod that ends because others need its resources."""

_OOM = "OOMKilled"
_UNSCHEDULABLE = "Unschedulable"
_DELETED = "Deleted"
_FORBIDDEN = "Forbidden"

_AT_START: Mapping[str, type[Unavailable]] = {
    **_IMAGE,
    _UNSCHEDULABLE: Unschedulable,
    _FORBIDDEN: EngineUnavailable,
}
_LATER: Mapping[str, type[SandboxLost]] = {
    _OOM: OutOfMemory,
    **dict.fromkeys(_DISRUPTED, Evicted),
    **dict.fromkeys(_OF_NODE, NodeLost),
}


@dataclass(frozen=True, slots=True)
class Failure:
    """How a pod failed."""

    reason: str
    """The cluster's name for it, such as `OOMKilled`."""
    problem: Problem
    """The cause, with the cluster's message, and the next step."""

    @property
    def out_of_memory(self) -> bool:
        """Whether the whole pod was ended at its memory limit."""
        return self.reason == _OOM

    @property
    def by_cluster(self) -> bool:
        """Whether the cluster ended it, and not its own program."""
        return self.reason in {*_AT_START, *_LATER, _DELETED}

    def at_start(self) -> Unavailable:
        """The error if no code has run in the pod yet."""
        return _AT_START.get(self.reason, StartFailed)(*self.problem)

    def later(self) -> SandboxLost:
        """The error once code has run in the pod."""
        return _LATER.get(self.reason, SandboxLost)(*self.problem)


def code_container(pod: Mapping[str, Any]) -> str:
    """The name of the container that runs code: ours, or the first of a pod that somebody else made."""
    names = [container["name"] for container in pod["spec"]["containers"]]
    return CONTAINER if CONTAINER in names else str(names[0])


def code_state(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state of that container: one of waiting, running, terminated; empty if it has none yet."""
    name = code_container(pod)
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        if container.get("name") == name:
            state: Mapping[str, Any] = container.get("state") or {}
            return state
    return {}


def failure(pod: Mapping[str, Any]) -> Failure | None:
    """Why a pod will never run, or no longer runs, with the cluster's message; None if it runs or still can."""
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    state = code_state(pod)
    waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
    if status.get("reason") and (status.get("phase") == "Failed" or status["reason"] == "NodeLost"):
        return _made(f"pod {name} was ended", status["reason"], status.get("message"))
    if waiting.get("reason") in _HOPELESS:
        return _never_starts(pod, waiting)
    if ended:
        reason = ended.get("reason") or f"exit code {ended.get('exitCode')}"
        message = ended.get("message")
        if ended.get("exitCode") == 0 and code_container(pod) == CONTAINER:
            message = "its connection to the server broke"  # our agent exits with 0 only at the end of its input
        return _made(f"pod {name} ended", reason, message)
    conditions = _conditions(pod)
    disrupted = conditions.get("DisruptionTarget") or {}
    if disrupted.get("status") == "True":
        return _made(f"pod {name} was ended", str(disrupted.get("reason")), disrupted.get("message"))
    if _lost(pod, conditions):
        node = pod["spec"].get("nodeName", "its node")
        return _made(f"pod {name} was lost", "NodeLost", f"{node} does not answer")
    return deleted(name) if pod["metadata"].get("deletionTimestamp") else None


def unscheduled(pod: Mapping[str, Any]) -> Failure | None:
    """Why no node takes a pod for now, which can change: nodes become free, or are added. None if one has taken it."""
    scheduled = _conditions(pod).get("PodScheduled") or {}
    if scheduled.get("reason") != _UNSCHEDULABLE:
        return None
    advice = "add nodes, or lower limits.memory and limits.cpus in the profile"
    return _made(f"no node takes pod {pod['metadata']['name']}", _UNSCHEDULABLE, scheduled.get("message"), advice)


def deleted(name: str) -> Failure:
    """The failure of a pod that somebody deleted."""
    return Failure(_DELETED, Problem(f"pod {name} was deleted", "open a new session"))


def forbidden(why: Problem) -> Failure:
    """The failure of a pod that this server is not allowed to watch."""
    return Failure(_FORBIDDEN, why)


def _conditions(pod: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """The conditions of a pod, by type."""
    return {condition.get("type"): condition for condition in (pod.get("status") or {}).get("conditions") or ()}


def _never_starts(pod: Mapping[str, Any], waiting: Mapping[str, Any]) -> Failure:
    name, reason = pod["metadata"]["name"], waiting["reason"]
    container = code_container(pod)
    image = next(one.get("image", "") for one in pod["spec"]["containers"] if one["name"] == container)
    if reason in _IMAGE:
        advice = "check kubernetes.image, kubernetes.pull and kubernetes.pull_secrets in the profile"
        return _made(f"image {image} of pod {name} is not available", reason, waiting.get("message"), advice)
    advice = "check kubernetes.pod_manifest in the profile, and the image"
    return _made(f"pod {name} of image {image} cannot start", reason, waiting.get("message"), advice)


def _lost(pod: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether its node does not answer: then the cluster reports the pod as not ready, but its containers as ready."""
    if pod["spec"].get("readinessGates"):
        return False
    of_pod, of_containers = (conditions.get(kind, {}).get("status") for kind in ("Ready", "ContainersReady"))
    return of_containers == "True" and of_pod in ("False", "Unknown")


def _made(what: str, reason: str, message: str | None, advice: str = "") -> Failure:
    detail = " ".join(str(message or "").split())[:_REASON]
    return Failure(reason, Problem(f"{what}: {reason}{', ' + detail if detail else ''}", advice or _advice(reason)))


def _advice(reason: str) -> str:
    if reason == _OOM:
        return "raise limits.memory in the profile, or make the code use less memory"
    if reason in _DISRUPTED:
        return "give its node more resources, or lower limits.memory and limits.disk in the profile"
    if reason in _OF_NODE:
        return "check the node, and open a new session"
    return "open a new session"
