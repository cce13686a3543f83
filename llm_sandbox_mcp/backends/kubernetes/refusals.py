"""The refusals of a cluster, as errors of this package that name the next step."""

from ...base.errors import CapacityReached, EngineUnavailable, SandboxError, StartFailed
from .api import Api, Refused
from .watching import GRANT


def as_error(refused: Refused, doing: str, api: Api) -> SandboxError:
    """The error for a refusal; `doing` is the request, such as "create a pod"."""
    where = f"namespace {api.namespace} of the cluster at {api.address}"
    if refused.status == 401:
        return EngineUnavailable(
            f"kubernetes at {api.address} does not accept our credentials: {refused}", "renew them"
        )
    if refused.status == 403 and "exceeded quota" in refused.message:
        return CapacityReached(f"{where} has no room: {refused}", "close sessions, or raise its ResourceQuota")
    if refused.status == 403 and "cannot" in refused.message:
        return EngineUnavailable(f"kubernetes does not allow this server to {doing}: {refused}", GRANT)
    if refused.status == 404 and "namespaces" in refused.message:
        return EngineUnavailable(f"the cluster at {api.address} has no namespace {api.namespace}", "create it")
    if refused.status in (400, 403, 422):
        return StartFailed(f"kubernetes refused to {doing}: {refused}", "check kubernetes.pod_manifest in the profile")
    return StartFailed(f"kubernetes refused to {doing}: {refused}", f"check {where}")
