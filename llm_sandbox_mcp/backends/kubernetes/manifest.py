"""The manifest of a pod: restricted in every way, with the profile's manifest merged in."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..layout import HANDLERS

CONTAINER = "sandbox"
"""The container in a pod that runs the code; the profile's manifest can add others."""

OPEN = {"llm-sandbox-mcp.network": "open"}
"""The label of pods that a policy in configs/kubernetes/network-policy.yaml allows to use the network."""
_DAY = 86_400
_HANDLERS_BYTES = 16 << 20
_KEYS = ("name", "mountPath", "key", "ip")
"""The keys that identify the same entry in two lists, in the order in which they are tried."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PodRecipe:
    """One pod to make; everything else is denied."""

    name: str
    image: str
    command: Sequence[str]
    labels: Mapping[str, str]
    folders: Mapping[str, int]
    """Writable folders in memory, and the maximum bytes in each."""
    memory: int
    cpus: float
    reserved: float
    """The share of its processors that its node reserves for it."""
    user: int
    """The user id, which no other pod has, for limits that are counted per user."""
    pull: str
    runtime_class: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()
    pull_secrets: Sequence[str] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    network: bool = False
    """Whether it can reach hosts outside of the cluster."""


def manifest(recipe: PodRecipe) -> Json:
    """The pod's manifest, which meets the Pod Security Standard "restricted" and is somewhat stricter."""
    folders = {**recipe.folders, HANDLERS: _HANDLERS_BYTES}
    names = {place: place.strip("/").replace("/", "-") for place in folders}
    limits = {"cpu": _cpu(recipe.cpus), "memory": str(recipe.memory)}
    # Its node reserves all of the memory, which cannot be taken back, and a share of the processors.
    requests = {**limits, "cpu": _cpu(recipe.cpus * recipe.reserved)}
    spec: Json = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": _DAY,
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostname": "sandbox",
        "dnsPolicy": "None",  # useless without a network, and it would show the names of the cluster's services
        "dnsConfig": {"nameservers": ["127.0.0.1"]},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": recipe.user,
            "runAsGroup": recipe.user,
            "fsGroup": recipe.user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": CONTAINER,
                "image": recipe.image,
                "imagePullPolicy": recipe.pull,
                "command": [*recipe.command],
                "workingDir": "/",
                # A file on the node's disk, without a size limit: in a folder of root's, so code cannot reach it.
                "terminationMessagePath": "/root/end",
                "stdin": True,
                "stdinOnce": True,  # so that its input ends when its server ends
                "resources": {"limits": limits, "requests": requests},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "privileged": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [{"name": names[place], "mountPath": place} for place in folders],
            }
        ],
        "volumes": [
            {"name": names[place], "emptyDir": {"medium": "Memory", "sizeLimit": str(size)}}
            for place, size in folders.items()
        ],
    }
    if recipe.network:
        del spec["dnsPolicy"], spec["dnsConfig"]
    if recipe.runtime_class:
        spec["runtimeClassName"] = recipe.runtime_class
    if recipe.node_selector:
        spec["nodeSelector"] = dict(recipe.node_selector)
    if recipe.tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in recipe.tolerations]
    if recipe.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in recipe.pull_secrets]
    metadata: Json = {"name": recipe.name, "labels": dict(recipe.labels)}
    if recipe.network:
        metadata["labels"] |= OPEN
    if recipe.annotations:
        metadata["annotations"] = dict(recipe.annotations)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _cpu(processors: float) -> str:
    return f"{math.ceil(processors * 1000)}m"


def merged(ours: Any, theirs: Any) -> Any:
    """Merges the operator's manifest over ours: objects by key, lists by the names of their entries; null removes."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        both = {key: merged(ours.get(key), value) for key, value in theirs.items() if value is not None}
        return {key: value for key, value in ours.items() if key not in theirs} | both
    if isinstance(ours, list) and isinstance(theirs, list):
        return _merged_lists(ours, theirs)
    return theirs


def _named(entry: Mapping[str, Any], key: str) -> bool:
    return isinstance(entry.get(key), str)


def _merged_lists(ours: list[Any], theirs: list[Any]) -> list[Any]:
    entries = [*ours, *theirs]
    key = next((key for key in _KEYS if all(isinstance(e, Mapping) and _named(e, key) for e in entries)), None)
    if key is None:
        return theirs
    result = {entry[key]: entry for entry in ours}
    for entry in theirs:
        result[entry[key]] = merged(result.get(entry[key]), entry)
    return [*result.values()]
