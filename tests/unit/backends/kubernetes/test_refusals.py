"""What a cluster refuses is told as the error that names its cause, with the next step."""

from types import SimpleNamespace
from typing import cast

import pytest

from llm_sandbox_mcp.backends.kubernetes.api import Api, Refused
from llm_sandbox_mcp.backends.kubernetes.refusals import as_error
from llm_sandbox_mcp.base.errors import CapacityReached, EngineUnavailable, SandboxError, StartFailed

API = cast(Api, SimpleNamespace(namespace="boxes", address="https://k"))
QUOTA = 'pods "x" is forbidden: exceeded quota: few, requested: pods=1'
RIGHTS = 'pods is forbidden: User "x" cannot list resource "pods"'
POLICY = 'pods "x" is forbidden: violates PodSecurity'


@pytest.mark.parametrize(
    ("status", "message", "error", "said"),
    [
        (401, "Unauthorized", EngineUnavailable, "does not accept our credentials"),
        (403, QUOTA, CapacityReached, "namespace boxes of the cluster at https://k has no room"),
        (403, RIGHTS, EngineUnavailable, "does not allow this server to create a pod"),
        (403, POLICY, StartFailed, "check kubernetes.pod_manifest in the profile"),
        (404, 'namespaces "boxes" not found', EngineUnavailable, "https://k has no namespace boxes; create it"),
        (404, 'pods "x" not found', StartFailed, "check namespace boxes of the cluster at https://k"),
        (400, "invalid", StartFailed, "check kubernetes.pod_manifest in the profile"),
        (422, "invalid", StartFailed, "check kubernetes.pod_manifest in the profile"),
        (409, QUOTA, StartFailed, "check namespace boxes of the cluster at https://k"),
        (500, RIGHTS, StartFailed, "check namespace boxes of the cluster at https://k"),
        (500, 'namespaces "boxes" not found', StartFailed, "check namespace boxes of the cluster at https://k"),
    ],
)
def test_a_refusal_is_told_with_its_cause_and_the_next_step(
    status: int, message: str, error: type[SandboxError], said: str
) -> None:
    found = as_error(Refused(status, "Reason", message), "create a pod", API)
    assert type(found) is error
    assert said in str(found)
    if status not in (401, 404):
        assert message in str(found)
