"""Checks that pods have no network: the cluster enforces this, and we verify it."""

from collections.abc import Mapping
from typing import Any

import anyio

from ...base.errors import EngineUnavailable
from ...base.text import one_line
from ..base import Sandbox
from ..layout import PATH
from .api import Api, Refused
from .leases import SERVER

_APPLY = "run kubectl apply -k configs/kubernetes"
_ALTERNATIVE = 'or set kubernetes.network = "unchecked" in the profile'
_SECONDS = 3
"""Seconds after which a connection counts as denied."""
_LISTENING = 30
_KUBELET = 10250
"""The port on which every node listens."""

_LISTEN = r"""
use IO::Socket::INET;
my $listener = IO::Socket::INET->new(Listen => 5, LocalAddr => '0.0.0.0') or die "cannot listen: $!\n";
$| = 1;
print $listener->sockport, "\n";
$listener->accept while 1;
"""
_CONNECT = r"""
use IO::Socket::INET;
$| = 1;
for my $place (@ARGV) {
    next if fork;
    print "$place " if IO::Socket::INET->new(PeerAddr => $place, Timeout => %d);
    exit;
}
1 while wait > 0;
print "end";
"""


async def denied_by_policy(api: Api) -> None:
    """Returns if a NetworkPolicy denies our pods all traffic; else raises `EngineUnavailable` with the next step."""
    try:
        path = f"/apis/networking.k8s.io/v1/namespaces/{api.namespace}/networkpolicies"
        listed = await api.call("GET", path)
    except Refused as refused:
        raise EngineUnavailable(
            f"kubernetes does not allow this server to list network policies: {refused}", f"{_APPLY}, {_ALTERNATIVE}"
        ) from refused
    if not any(_denies_all(policy["spec"]) for policy in listed["items"]):
        raise EngineUnavailable(
            f"namespace {api.namespace} has no NetworkPolicy that denies sandboxes all traffic",
            f"{_APPLY}, {_ALTERNATIVE}",
        )


async def denied_in_fact(target: Sandbox, address: str, node: str, other: Sandbox) -> None:
    """Returns if pods reach neither each other nor a node; else raises `EngineUnavailable`, whatever a policy says."""
    async with await target.spawn(("perl", "-e", _LISTEN), {"PATH": PATH}) as listener:
        port = bytearray()
        with anyio.fail_after(_LISTENING):
            while not port.endswith(b"\n"):
                port += await listener.stdout.receive()
        places = (f"{address}:{port.decode().strip()}", f"{node}:{_KUBELET}")
        done = await other.run(("perl", "-e", _CONNECT % _SECONDS, *places), {"PATH": PATH})
    *reached, end = done.stdout.decode().split(" ")
    if reached:
        raise EngineUnavailable(
            f"pods reach {' and '.join(reached)}: the cluster does not enforce NetworkPolicy",
            f"install a network plugin that does, {_ALTERNATIVE}",
        )
    if end != "end":
        reason = one_line(done.stderr.decode(errors="replace")) or f"it ended with exit code {done.exit_code}"
        raise EngineUnavailable(
            f"the program that checks what pods reach failed in {other.origin}: {reason}",
            f"add Perl to the image (perl-base is enough), {_ALTERNATIVE}",
        )


def _denies_all(spec: Mapping[str, Any]) -> bool:
    selector = spec.get("podSelector") or {}
    ours = not selector or selector == {"matchExpressions": [{"key": SERVER, "operator": "Exists"}]}
    kinds = set(spec.get("policyTypes") or ())
    return ours and kinds == {"Ingress", "Egress"} and not spec.get("ingress") and not spec.get("egress")
