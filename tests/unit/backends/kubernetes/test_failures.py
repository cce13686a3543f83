"""How the status of a pod, as a cluster reports it, becomes an error."""

from typing import Any

import pytest

from llm_sandbox_mcp.backends.kubernetes.failures import failure
from llm_sandbox_mcp.backends.kubernetes.watching import Watched
from llm_sandbox_mcp.base.errors import (
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
from llm_sandbox_mcp.base.messages import joined


def pod(state: dict[str, Any] | None = None, *, deleted: bool = False, **status: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "sandbox-1", "resourceVersion": "1"}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if state is not None:
        status["containerStatuses"] = [
            {"name": "sidecar", "state": {"running": {}}},
            {"name": "sandbox", "state": state},
        ]
    return {"metadata": metadata, "spec": {"containers": [{"name": "sandbox", "image": "image:1"}]}, "status": status}


def disrupted(reason: str, message: str) -> dict[str, str]:
    return {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}


SILENT = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}]

FAILURES = {
    "an image that cannot be pulled": (
        pod({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off; pulling"}}, phase="Pending"),
        ("image image:1 of pod sandbox-1", "ImagePullBackOff, Back-off; pulling", "kubernetes.pull_secrets"),
    ),
    "a missing image": (
        pod({"waiting": {"reason": "ErrImageNeverPull", "message": "not present"}}, phase="Pending"),
        ("image image:1 of pod sandbox-1", "ErrImageNeverPull, not present", "kubernetes.pull"),
    ),
    "a start that fails": (
        pod({"waiting": {"reason": "CreateContainerConfigError", "message": "no secret"}}, phase="Pending"),
        ("pod sandbox-1 of image image:1 cannot start", "no secret", "pod_manifest"),
    ),
    "out of memory": (
        pod({"terminated": {"reason": "OOMKilled", "exitCode": 137}}, phase="Failed"),
        ("pod sandbox-1 ended: OOMKilled", "limits.memory"),
    ),
    "evicted": (
        pod(phase="Failed", reason="Evicted", message="low on memory"),
        ("pod sandbox-1 was ended: Evicted, low on memory", "limits.disk"),
    ),
    "a node that is lost": (
        pod({"running": {}}, phase="Running", reason="NodeLost", message="unresponsive", deleted=True),
        ("NodeLost, unresponsive", "check the node"),
    ),
    "a node that is silent": (
        pod({"running": {}}, phase="Running", conditions=[*SILENT, {"type": "PodScheduled", "status": "True"}]),
        ("pod sandbox-1 was lost: NodeLost, its node does not answer", "check the node"),
    ),
    "a node that is tainted": (
        pod({"running": {}}, deleted=True, conditions=[disrupted("DeletionByTaintManager", "deleting")]),
        ("pod sandbox-1 was ended: DeletionByTaintManager, deleting", "check the node"),
    ),
    "preempted by another pod": (
        pod({"running": {}}, deleted=True, conditions=[disrupted("PreemptionByScheduler", "preempted")]),
        ("pod sandbox-1 was ended: PreemptionByScheduler, preempted", "more resources"),
    ),
    "too old": (
        pod(phase="Failed", reason="DeadlineExceeded"),
        ("pod sandbox-1 was ended: DeadlineExceeded", "new session"),
    ),
    "deleted": (pod({"running": {}}, phase="Running", deleted=True), ("pod sandbox-1 was deleted", "new session")),
    "cut off from the server": (
        pod({"terminated": {"reason": "Completed", "exitCode": 0}}, phase="Succeeded"),
        ("pod sandbox-1 ended: Completed, its connection to the server broke; open a new session",),
    ),
    "ended": (pod({"terminated": {"exitCode": 1}}, phase="Failed"), ("pod sandbox-1 ended: exit code 1",)),
}

NO_NODE = pod(
    phase="Pending",
    conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}],
)

NOT_FAILED = {
    "just made": pod(phase="Pending"),
    "no node for now": NO_NODE,
    "being made": pod({"waiting": {"reason": "ContainerCreating"}}, phase="Pending"),
    "scheduled": pod(phase="Pending", conditions=[{"type": "PodScheduled", "status": "True"}]),
    "running": pod({"running": {}}, phase="Running"),
    "not ready by its own readiness": pod(
        {"running": {}},
        conditions=[{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "False"}],
    ),
}


RUNNING = {"running", "not ready by its own readiness"}


@pytest.mark.parametrize("what", FAILURES)
def test_a_failure_is_reported_with_its_cause_and_the_next_step(what: str) -> None:
    seen, expected = FAILURES[what]
    found = failure(seen)
    assert found
    assert all(words in joined(*found.problem) for words in expected), found
    assert found.problem.step
    watched = Watched("sandbox-1")
    watched.take(seen)
    assert watched.over.is_set()
    assert watched.ready.is_set()
    assert watched.failure == found


def test_a_pod_that_no_node_takes_can_still_run() -> None:
    watched = Watched("sandbox-1")
    watched.take(NO_NODE)
    assert watched.unscheduled
    for words in ("no node takes pod sandbox-1", "Unschedulable, 0/1 nodes", "; add nodes"):
        assert words in joined(*watched.unscheduled.problem)
    assert type(watched.unscheduled.at_start()) is Unschedulable
    watched.take(NOT_FAILED["scheduled"])
    assert watched.unscheduled is None
    assert not watched.ready.is_set()
    watched.take(NOT_FAILED["running"])
    assert watched.ready.is_set()


TYPES: dict[str, tuple[type[Unavailable], type[SandboxLost]]] = {
    "an image that cannot be pulled": (ImageFailed, SandboxLost),
    "a missing image": (ImageMissing, SandboxLost),
    "out of memory": (StartFailed, OutOfMemory),
    "evicted": (StartFailed, Evicted),
    "preempted by another pod": (StartFailed, Evicted),
    "a node that is lost": (StartFailed, NodeLost),
    "a node that is silent": (StartFailed, NodeLost),
    "a node that is tainted": (StartFailed, NodeLost),
    "deleted": (StartFailed, SandboxLost),
}


@pytest.mark.parametrize("what", TYPES)
def test_each_cause_has_its_own_error(what: str) -> None:
    found = failure(FAILURES[what][0])
    assert found
    assert (type(found.at_start()), type(found.later())) == TYPES[what]


def test_a_pod_of_another_user_is_judged_by_its_first_container() -> None:
    theirs = pod(phase="Running")
    theirs["spec"]["containers"] = [{"name": "main", "image": "image:2"}, {"name": "side", "image": "image:3"}]
    states = {"side": {"running": {}}, "main": {"waiting": {"reason": "ErrImagePull"}}}
    theirs["status"]["containerStatuses"] = [{"name": name, "state": state} for name, state in states.items()]
    watched = Watched("sandbox-1")
    watched.take(theirs)
    assert watched.container == "main"
    assert watched.failure
    assert watched.failure.problem.cause.startswith("image image:2 of pod sandbox-1 is not available")


@pytest.mark.parametrize("what", NOT_FAILED)
def test_a_pod_that_may_still_become_ready_is_not_a_failure(what: str) -> None:
    watched = Watched("sandbox-1")
    watched.take(NOT_FAILED[what])
    assert not watched.over.is_set()
    assert watched.ready.is_set() == (what in RUNNING)


def test_the_first_failure_is_the_reason() -> None:
    watched = Watched("sandbox-1")
    calls: list[None] = []
    watched.on_over = lambda: calls.append(None)
    watched.take(FAILURES["out of memory"][0])
    watched.take(FAILURES["deleted"][0])
    assert watched.failure
    assert watched.failure.out_of_memory
    assert len(calls) == 1
