"""What a cluster says of a pod, and what that means."""

from typing import Any

import pytest

from llm_sandbox_mcp.backends.kubernetes.watching import Watched, failure


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


SILENT = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}]

FAILURES = {
    "an image that cannot be pulled": (
        pod({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off; pulling"}}, phase="Pending"),
        ("image image:1 of pod sandbox-1", "ImagePullBackOff, Back-off, pulling", "kubernetes.pull_secrets"),
    ),
    "a start that fails": (
        pod({"waiting": {"reason": "CreateContainerConfigError", "message": "no secret"}}, phase="Pending"),
        ("pod sandbox-1 of image image:1 cannot start", "no secret", "pod_manifest"),
    ),
    "no node": (
        pod(
            phase="Pending",
            conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}],
        ),
        ("no node takes pod sandbox-1", "0/1 nodes", "add nodes"),
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
        ("NodeLost, unresponsive", "see to the node"),
    ),
    "a node that is silent": (
        pod({"running": {}}, phase="Running", conditions=[*SILENT, {"type": "PodScheduled", "status": "True"}]),
        ("pod sandbox-1 was lost: NodeLost, its node is silent", "see to the node"),
    ),
    "too old": (
        pod(phase="Failed", reason="DeadlineExceeded"),
        ("pod sandbox-1 was ended: DeadlineExceeded", "new session"),
    ),
    "deleted": (pod({"running": {}}, phase="Running", deleted=True), ("pod sandbox-1 was deleted", "new session")),
    "ended": (pod({"terminated": {"exitCode": 1}}, phase="Failed"), ("pod sandbox-1 ended: exit code 1",)),
}

HOPEFUL = {
    "just made": pod(phase="Pending"),
    "being made": pod({"waiting": {"reason": "ContainerCreating"}}, phase="Pending"),
    "scheduled": pod(phase="Pending", conditions=[{"type": "PodScheduled", "status": "True"}]),
    "running": pod({"running": {}}, phase="Running"),
    "not ready by its own account": pod(
        {"running": {}},
        conditions=[{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "False"}],
    ),
}


RUNNING = {"running", "not ready by its own account"}


@pytest.mark.parametrize("what", FAILURES)
def test_a_failure_is_told_with_its_cause_and_the_next_step(what: str) -> None:
    seen, says = FAILURES[what]
    said = failure(seen)
    assert all(words in said for words in says), said
    assert said.count("; ") == 1
    watched = Watched("sandbox-1")
    watched.take(seen)
    assert watched.over.is_set()
    assert watched.ready.is_set()
    assert watched.failure == said


@pytest.mark.parametrize("what", HOPEFUL)
def test_what_may_still_become_ready_is_no_failure(what: str) -> None:
    watched = Watched("sandbox-1")
    watched.take(HOPEFUL[what])
    assert not watched.over.is_set()
    assert watched.ready.is_set() == (what in RUNNING)


def test_the_first_failure_is_the_reason() -> None:
    watched = Watched("sandbox-1")
    calls: list[None] = []
    watched.on_over = lambda: calls.append(None)
    watched.take(FAILURES["out of memory"][0])
    watched.take(FAILURES["deleted"][0])
    assert "OOMKilled" in watched.failure
    assert len(calls) == 1
