"""Finds what is less strict in a pod than in our own pods: one with the profile's manifest, or somebody else's pod.

Everything that is not known to be harmless is reported.
"""

import re
from collections.abc import Iterator, Mapping

from .manifest import CONTAINER, Json

_VALUES: Mapping[str, tuple[object, ...]] = {
    "automountServiceAccountToken": (False,),
    "enableServiceLinks": (False,),
    "hostIPC": (None, False),
    "hostNetwork": (None, False),
    "hostPID": (None, False),
    "restartPolicy": ("Never",),
    "shareProcessNamespace": (None, False),
}
"""Fields of a pod, and their harmless values."""
_CHECKED = {"containers", "initContainers", "securityContext", "volumes"}
_HARMLESS = {
    "activeDeadlineSeconds",
    "affinity",
    "dnsConfig",
    "dnsPolicy",
    "hostUsers",
    "hostname",
    "imagePullSecrets",
    "nodeName",
    "nodeSelector",
    "overhead",
    "readinessGates",
    "runtimeClassName",
    "schedulerName",
    "schedulingGates",
    "serviceAccount",
    "serviceAccountName",
    "terminationGracePeriodSeconds",
    "tolerations",
    "topologySpreadConstraints",
}
_HARMLESS_SECURITY = {"fsGroup", "fsGroupChangePolicy", "runAsGroup", "runAsNonRoot", "runAsUser", "seccompProfile"}
_CONTAINER = {"env", "ports", "resources", "securityContext", "terminationMessagePath", "volumeMounts"}
_PROBES = {"livenessProbe", "readinessProbe", "startupProbe"}
_HARMLESS_CONTAINER = {
    *_PROBES,
    "args",
    "command",
    "image",
    "imagePullPolicy",
    "name",
    "stdin",
    "stdinOnce",
    "terminationMessagePolicy",
    "workingDir",
}
_CONTAINER_SECURITY = {"allowPrivilegeEscalation", "capabilities", "privileged", "readOnlyRootFilesystem"}
_HARMLESS_VOLUMES = {"name", "emptyDir", "configMap", "downwardAPI"}
_LIMITS = {"cpu", "memory", "ephemeral-storage"}
_NONE = re.compile(r"0*(\.0*)?[A-Za-z]*")
"""A quantity of zero, which as a limit means no limit."""
_ANNOTATIONS = re.compile(r"k8s|kubernetes|cni|cdi|nri|cri-o|containerd|kata|gvisor|apparmor|seccomp|network|device")
"""Parts of the names of annotations that a cluster's own programs, runtimes and plugins act on."""
_HARMLESS_ANNOTATIONS = ("cluster-autoscaler.kubernetes.io/", "kubectl.kubernetes.io/")

_LIMITED_BY = ("the cpu limit", "the memory limit", "the user id")
"""The bounds that enforce a policy; processes are counted per user."""


def loosened(pod: Json) -> Iterator[str]:
    """Each difference that makes a pod less strict than ours, one line each."""
    metadata, spec = pod.get("metadata") or {}, pod["spec"]
    for name in metadata.get("annotations") or ():
        if _ANNOTATIONS.search(name) and not name.startswith(_HARMLESS_ANNOTATIONS):
            yield f"annotation {name} is set"
    if metadata.get("finalizers"):
        yield "metadata.finalizers delay the deletion of the pod"
    for key, allowed in _VALUES.items():
        if spec.get(key) not in allowed:
            yield f"spec.{key} is {spec.get(key)!r}"
    yield from _unknown("spec.", spec, {*_VALUES, *_CHECKED, *_HARMLESS})
    for volume in spec.get("volumes") or ():
        yield from _of_volume(volume)
    of_pod = spec.get("securityContext") or {}
    yield from _unknown("spec.securityContext.", of_pod, _HARMLESS_SECURITY)
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        for difference in _of_container(container, of_pod):
            yield f"container {container['name']}: {difference}"


def _unknown(place: str, given: Json, known: set[str]) -> Iterator[str]:
    for key, value in given.items():
        if key not in known and value not in (None, False, [], {}):
            yield f"{place}{key} is set"


def _of_volume(volume: Json) -> Iterator[str]:
    name = volume["name"]
    for kind in sorted(set(volume) - _HARMLESS_VOLUMES):
        yield f"volume {name} is a {kind}"
    if "emptyDir" in volume or set(volume) == {"name"}:  # without a kind, it is an emptyDir too
        folder = volume.get("emptyDir") or {}
        if _nothing(folder.get("sizeLimit")):
            yield f"volume {name} has no sizeLimit"
        if folder.get("medium") != "Memory":
            yield f"volume {name} is on the disk of its node"


def _nothing(quantity: object) -> bool:
    return quantity is None or _NONE.fullmatch(str(quantity)) is not None


def _of_container(container: Json, of_pod: Json) -> Iterator[str]:
    own = container.get("securityContext") or {}
    both = {**of_pod, **own}
    if both.get("runAsNonRoot") is not True or both.get("runAsUser") == 0:
        yield "may run as root"
    if 0 in (both.get("runAsGroup"), both.get("fsGroup")):
        yield "runs in root's group"
    if own.get("privileged"):
        yield "is privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield "may gain privileges"
    if own.get("readOnlyRootFilesystem") is not True:
        yield "can write to its image"
    capabilities = own.get("capabilities") or {}
    if "ALL" not in (capabilities.get("drop") or ()):
        yield "keeps capabilities"
    for added in capabilities.get("add") or ():
        yield f"gains capability {added}"
    if (both.get("seccompProfile") or {}).get("type") not in ("RuntimeDefault", "Localhost"):
        yield "has no system call filter"
    yield from _unknown("securityContext.", own, _HARMLESS_SECURITY | _CONTAINER_SECURITY)
    yield from _of_rest(container)


def _of_rest(container: Json) -> Iterator[str]:
    limits = (container.get("resources") or {}).get("limits") or {}
    for kind in ("cpu", "memory"):
        if _nothing(limits.get(kind)):
            yield f"has no {kind} limit"
    for kind in sorted(set(limits) - _LIMITS):
        yield f"gets the resource {kind}"
    for probe in sorted(_PROBES & {*container}):
        if any(isinstance(asked, Mapping) and asked.get("host") for asked in (container[probe] or {}).values()):
            yield f"makes its node send requests to another host by its {probe}"
    for variable in container.get("env") or ():
        if "secretKeyRef" in (variable.get("valueFrom") or {}):
            yield f"gets a secret in its variable {variable['name']}"
    for mount in container.get("volumeMounts") or ():
        if mount.get("mountPropagation") not in (None, "None"):
            yield f"shares mounts at {mount.get('mountPath') or mount.get('name')} with its node"
    for port in container.get("ports") or ():
        if port.get("hostPort"):
            yield f"listens on port {port['hostPort']} of its node"
    yield from _unknown("", container, _CONTAINER | _HARMLESS_CONTAINER)


def rebound(ours: Json, merged: Json) -> Iterator[str]:
    """Each bound of our own pods that the profile's manifest changes when it is merged in, one line each."""
    after = _bounds(merged)
    for what, bound in _bounds(ours).items():
        if bound is not None and after.get(what) != bound:
            yield f"{what} is {after.get(what) or 'none'}, whatever else the profile says"


def unlimited(ours: Json, merged: Json) -> list[str]:
    """The limits of a policy that such a pod does not have, each with the value that it has instead."""
    before, after = _bounds(ours), _bounds(merged)
    return [f"{what} is {after[what] or 'none'}" for what in _LIMITED_BY if after[what] != before[what]]


def _bounds(pod: Json) -> dict[str, object]:
    spec = pod["spec"]
    security = spec.get("securityContext") or {}
    container: Json = next((one for one in spec["containers"] if one["name"] == CONTAINER), {})
    limits = (container.get("resources") or {}).get("limits") or {}
    own = {**security, **(container.get("securityContext") or {})}
    sizes = {
        f"the size of volume {volume['name']}": (volume.get("emptyDir") or {}).get("sizeLimit")
        for volume in spec.get("volumes") or ()
    }
    return {
        "spec.activeDeadlineSeconds": spec.get("activeDeadlineSeconds"),
        "spec.dnsPolicy": spec.get("dnsPolicy"),
        "spec.runtimeClassName": spec.get("runtimeClassName"),
        "the user id": own.get("runAsUser"),
        "the system call filter": (own.get("seccompProfile") or {}).get("type"),
        "stdinOnce": container.get("stdinOnce"),
        "terminationMessagePath": container.get("terminationMessagePath"),
        "the cpu limit": limits.get("cpu"),
        "the memory limit": limits.get("memory"),
        **sizes,
    }
