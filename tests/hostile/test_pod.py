"""Attack: using what a node gives every pod. Outcome: there are no credentials of the pod, and no way to the node's
disk."""

import json

import pytest

from tests.hostile.calls import ATTEMPT, REPORT
from tests.hostile.conftest import Arena
from tests.hostile.deviations import PODS

# Not a fixture of the same name: it would get the server of the backend that ran before.
pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend_name", PODS, indirect=True, scope="package")]


async def test_no_file_of_the_node_can_be_written(arena: Arena) -> None:
    output = await arena.check(
        ATTEMPT
        + """
mounts = [line.split() for line in open('/proc/self/mountinfo')]
files = [fields[4] for fields in mounts if ' - tmpfs ' not in ' '.join(fields) and fields[4].startswith(('/etc/', '/dev/term', '/root'))]
for path in {*files, '/dev/termination-log', '/root/end', '/etc/hosts', '/etc/hostname', '/etc/resolv.conf'}:
    attempt(path, open, path, 'ab')
    attempt(f'mode of {path}', os.chmod, path, 0o777)
"""
        + REPORT
    )
    attempts = json.loads(output)
    assert "/root/end" in attempts
    assert {name: how for name, how in attempts.items() if how == "done"} == {}


async def test_a_pod_has_no_credentials(arena: Arena) -> None:
    output = await arena.check("""
import json, os
environment = open('/proc/1/environ', 'rb').read().split(b'\\0')
mounted = [line.split()[4] for line in open('/proc/self/mountinfo')]
print(json.dumps([
    sorted(name.partition(b'=')[0].decode() for name in environment if name),
    [place for place in mounted if 'secret' in place or 'token' in place],
    [place for place in ('/var/run/secrets', '/run/secrets', '/etc/kubernetes') if os.path.lexists(place)],
]))
""")
    names, mounted, there = json.loads(output)
    # KUBERNETES_*: the address of the cluster's API, which every pod gets; the others are set by the image.
    assert {name for name in names if not name.startswith("KUBERNETES_")} <= {"PATH", "HOME", "LANG", "HOSTNAME"}
    assert (mounted, there) == ([], [])
