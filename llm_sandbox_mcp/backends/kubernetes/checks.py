"""The rows that `doctor` shows for a cluster that answers."""

from collections.abc import Sequence

from ...base.errors import EngineUnavailable
from ..base import Check
from .api import Api, Refused
from .failures import code_state, failure
from .loosening import loosened
from .network import denied_by_policy
from .refusals import as_error
from .watching import of_name


def pods_check(loosened_by_profile: Sequence[str]) -> Check:
    """Whether pods are as restricted as they are without changes by the profile."""
    if loosened_by_profile:
        changes = ", ".join(loosened_by_profile)
        return Check("pods", "degraded", changes, "check kubernetes.pod_manifest in the profile")
    return Check("pods", "ok", 'they meet the Pod Security Standard "restricted"')


async def network_check(api: Api, network: str) -> Check:
    """Whether pods are denied the network, as far as the cluster's objects show."""
    if network == "unchecked":
        fix = 'set kubernetes.network = "enforced" in the profile'
        return Check("network", "degraded", "pods may have network access", fix)
    try:
        await denied_by_policy(api)
    except EngineUnavailable as error:
        return Check("network", "missing", *error.problem)
    return Check("network", "ok", "denied by a NetworkPolicy, whose effect is checked before the first sandbox")


async def joined_checks(api: Api, name: str) -> list[Check]:
    """The rows for a pod that is joined, which somebody else made."""
    try:
        found = await api.call("GET", f"/api/v1/namespaces/{api.namespace}/pods", [of_name(name)])
    except Refused as refused:
        return [Check("pods", "missing", *as_error(refused, f"find pod {name}", api).problem)]
    except EngineUnavailable as error:
        return [Check("pods", "missing", *error.problem)]
    if not found["items"]:
        return [Check("pods", "missing", f"there is no pod {name} in namespace {api.namespace}", "start it")]
    pod = found["items"][0]
    if ended := failure(pod):
        return [Check("pods", "missing", *ended.problem)]
    if "running" not in code_state(pod):
        return [Check("pods", "missing", f"pod {name} is not running in namespace {api.namespace}", "start it")]
    differences = [*loosened(pod)]
    of_pod = Check("pods", "ok", f'pod {name} meets the Pod Security Standard "restricted"')
    if differences:
        detail = f"pod {name}: {', '.join(differences)}"
        of_pod = Check("pods", "degraded", detail, "change its manifest, or join another pod")
    fix = "add a NetworkPolicy that denies the pod all traffic, like the one in configs/kubernetes"
    return [of_pod, Check("network", "degraded", f"the network access of pod {name} is not checked", fix)]
