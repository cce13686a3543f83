"""What `doctor` tells of a cluster that answers."""

from collections.abc import Sequence

from ...errors import EngineUnavailable
from ..base import Check, halves
from .api import Api, Refused
from .failures import code_state, failure
from .loosening import loosened
from .network import denied_by_policy
from .refusals import as_error
from .watching import of_name


def pods_check(loosened_by_profile: Sequence[str]) -> Check:
    """Whether pods are as restricted as they are by themselves."""
    if loosened_by_profile:
        said = ", ".join(loosened_by_profile)
        return Check("pods", "degraded", said, "see kubernetes.pod_manifest in the profile")
    return Check("pods", "ok", 'restricted by the Pod Security Standard "restricted"')


async def network_check(api: Api, network: str) -> Check:
    """Whether pods are denied the network, as far as the cluster's objects tell."""
    if network == "unchecked":
        return Check("network", "degraded", "pods may have one", 'set kubernetes.network = "enforced" in the profile')
    try:
        await denied_by_policy(api)
    except EngineUnavailable as error:
        return Check("network", "missing", *halves(str(error)))
    return Check("network", "ok", "denied by policy; that it is enforced is found out before the first sandbox")


async def joined_checks(api: Api, name: str) -> list[Check]:
    """The same of a pod of somebody else's that is joined, which is as it is."""
    try:
        found = await api.call("GET", f"/api/v1/namespaces/{api.namespace}/pods", [of_name(name)])
    except Refused as refused:
        return [Check("pods", "missing", *halves(str(as_error(refused, f"find pod {name}", api))))]
    except EngineUnavailable as error:
        return [Check("pods", "missing", *halves(str(error)))]
    if not found["items"]:
        return [Check("pods", "missing", f"there is no pod {name} in namespace {api.namespace}", "start it")]
    pod = found["items"][0]
    if ended := failure(pod):
        return [Check("pods", "missing", *halves(ended.message))]
    if "running" not in code_state(pod):
        return [Check("pods", "missing", f"pod {name} does not run in namespace {api.namespace}", "start it")]
    said = [*loosened(pod)]
    of_pod = Check("pods", "ok", f'pod {name} is what the Pod Security Standard "restricted" asks for')
    if said:
        of_pod = Check("pods", "degraded", f"pod {name}: {', '.join(said)}", "change its manifest, or join another")
    fix = "have a NetworkPolicy deny it everything, as that of configs/kubernetes does for pods of ours"
    return [of_pod, Check("network", "degraded", f"pod {name} has the network that it was given", fix)]
