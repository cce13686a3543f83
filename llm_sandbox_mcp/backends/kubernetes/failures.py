"""Why a pod will never run, or runs no more: what the cluster says of it, as errors of ours."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import (
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
from .manifest import CONTAINER

_REASON = 300
"""Characters of what a cluster says of one pod."""

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
"""Why a container waits whose image will not come."""
# https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/kuberuntime/kuberuntime_container.go
_HOPELESS = {
    *_IMAGE,
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "StartError",
    "CrashLoopBackOff",
}
"""Why one waits that will not start by waiting."""
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
"""Why one ends whose node is no longer there for it."""
# https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
_DISRUPTED = {"EvictionByEvictionAPI", "PreemptionByScheduler", "TerminationByKubelet", "Preempting", "Evicted"}
"""Why one ends that gives its room to others."""

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
    """What became of a pod."""

    reason: str
    """The cluster's own word, such as `OOMKilled`."""
    message: str
    """The cause, with what the cluster says; the next step."""

    @property
    def out_of_memory(self) -> bool:
        """Whether all of it was ended at its memory limit."""
        return self.reason == _OOM

    @property
    def by_cluster(self) -> bool:
        """Whether the cluster ended it, and not its own program."""
        return self.reason in {*_AT_START, *_LATER, _DELETED}

    def at_start(self) -> Unavailable:
        """The error while no code has run in it."""
        return _AT_START.get(self.reason, StartFailed)(self.message)

    def later(self) -> SandboxLost:
        """The error from then on."""
        return _LATER.get(self.reason, SandboxLost)(self.message)


def code_container(pod: Mapping[str, Any]) -> str:
    """The name of the container that runs code: ours, or the first of a pod that somebody else made."""
    names = [container["name"] for container in pod["spec"]["containers"]]
    return CONTAINER if CONTAINER in names else str(names[0])


def code_state(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state of that container: one of waiting, running, terminated; empty before there is any."""
    name = code_container(pod)
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        if container.get("name") == name:
            state: Mapping[str, Any] = container.get("state") or {}
            return state
    return {}


def failure(pod: Mapping[str, Any]) -> Failure | None:
    """Why a pod will not run, or runs no more, with what the cluster says of it; None while it may."""
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    state = code_state(pod)
    waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
    if status.get("reason") and (status.get("phase") == "Failed" or status["reason"] == "NodeLost"):
        return _said(f"pod {name} was ended", status["reason"], status.get("message"))
    if waiting.get("reason") in _HOPELESS:
        return _never_starts(pod, waiting)
    if ended:
        reason = ended.get("reason") or f"exit code {ended.get('exitCode')}"
        message = ended.get("message")
        if ended.get("exitCode") == 0 and code_container(pod) == CONTAINER:
            message = "its connection to the server broke"  # our agent comes to its end with its input alone
        return _said(f"pod {name} ended", reason, message)
    conditions = {condition.get("type"): condition for condition in status.get("conditions") or ()}
    scheduled = conditions.get("PodScheduled") or {}
    if scheduled.get("reason") == _UNSCHEDULABLE:
        advice = "add nodes, or lower limits.memory and limits.cpus in the profile"
        return _said(f"no node takes pod {name}", _UNSCHEDULABLE, scheduled.get("message"), advice)
    disrupted = conditions.get("DisruptionTarget") or {}
    if disrupted.get("status") == "True":
        return _said(f"pod {name} was ended", str(disrupted.get("reason")), disrupted.get("message"))
    if _lost(pod, conditions):
        node = pod["spec"].get("nodeName", "its node")
        return _said(f"pod {name} was lost", "NodeLost", f"{node} is silent")
    return deleted(name) if pod["metadata"].get("deletionTimestamp") else None


def deleted(name: str) -> Failure:
    """Of a pod that somebody deleted."""
    return Failure(_DELETED, f"pod {name} was deleted; open a new session")


def forbidden(why: str) -> Failure:
    """Of a pod whose becoming is not told, since that is not allowed."""
    return Failure(_FORBIDDEN, why)


def _never_starts(pod: Mapping[str, Any], waiting: Mapping[str, Any]) -> Failure:
    name, reason = pod["metadata"]["name"], waiting["reason"]
    container = code_container(pod)
    image = next(one.get("image", "") for one in pod["spec"]["containers"] if one["name"] == container)
    if reason in _IMAGE:
        advice = "check kubernetes.image, kubernetes.pull and kubernetes.pull_secrets in the profile"
        return _said(f"image {image} of pod {name} cannot be had", reason, waiting.get("message"), advice)
    advice = "check kubernetes.pod_manifest in the profile, and the image"
    return _said(f"pod {name} of image {image} cannot start", reason, waiting.get("message"), advice)


def _lost(pod: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether its node is silent: then the pod is not ready by what the cluster says, but its containers still are."""
    if pod["spec"].get("readinessGates"):
        return False
    of_pod, of_containers = (conditions.get(kind, {}).get("status") for kind in ("Ready", "ContainersReady"))
    return of_containers == "True" and of_pod in ("False", "Unknown")


def _said(what: str, reason: str, message: str | None, advice: str = "") -> Failure:
    told = " ".join(str(message or "").replace(";", ",").split())[:_REASON]
    return Failure(reason, f"{what}: {reason}{', ' + told if told else ''}; {advice or _advice(reason)}")


def _advice(reason: str) -> str:
    if reason == _OOM:
        return "raise limits.memory in the profile, or have the code use less"
    if reason in _DISRUPTED:
        return "give its node more room, or lower limits.memory and limits.disk in the profile"
    if reason in _OF_NODE:
        return "see to the node, and open a new session"
    return "open a new session"
