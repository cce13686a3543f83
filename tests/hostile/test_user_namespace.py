"""Attack: a user namespace within the sandbox, where every capability is to be had. Outcome: denied."""

import json

import pytest

from tests.hostile.calls import ATTEMPT, REPORT
from tests.hostile.conftest import Arena

pytestmark = pytest.mark.anyio


async def test_no_namespace_can_be_made_or_entered(arena: Arena) -> None:
    output = await arena.check(
        ATTEMPT
        + """
flags = {'mount': 0x20000, 'cgroup': 0x2000000, 'uts': 0x4000000, 'ipc': 0x8000000, 'user': 0x10000000, 'pid': 0x20000000,
         'net': 0x40000000, 'time': 0x80}
unshare, clone, setns, clone3 = (272, 56, 308, 435) if platform.machine() == 'x86_64' else (97, 220, 268, 435)
for name, flag in flags.items():
    call(f'unshare {name}', unshare, flag)
    if name != 'time':
        call(f'clone {name}', clone, flag | 17, 0, 0, 0, 0)
        call(f'clone {name}, high bits set', clone, flag | 17 | 1 << 40, 0, 0, 0, 0)
call('unshare all', unshare, 0x7E020080)
call('clone3', clone3, None, 88)
for name in ('user', 'mnt', 'net', 'pid', 'ipc'):
    call(f'setns {name}', setns, os.open(f'/proc/self/ns/{name}', os.O_RDONLY), 0)
"""
        + REPORT
    )
    attempts = json.loads(output)
    assert attempts.pop("clone3") == "ENOSYS"
    assert len(attempts) > 25
    assert set(attempts.values()) == {"EPERM"}, attempts


async def test_tools_that_make_namespaces_fail(arena: Arena) -> None:
    result = await arena.attack(
        "unshare -r id 2>&1; unshare -U true 2>&1; command -v bwrap >/dev/null && bwrap --ro-bind / / id 2>&1; true",
        language="bash",
    )
    assert "uid=0" not in result.stdout.text


async def test_the_code_has_no_capability_and_one_user(arena: Arena) -> None:
    output = await arena.check("""
import json
status = dict(line.rstrip('\\n').split(':\\t', 1) for line in open('/proc/self/status') if ':\\t' in line)
print(json.dumps([status[key] for key in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp')]))
print(json.dumps([open('/proc/self/uid_map').read().split()[::2], status['Uid'].split()]))
""")
    capabilities, users = (json.loads(line) for line in output.splitlines())
    assert capabilities == ["0" * 16] * 5 + ["1", "2"]
    assert users == [["1000", "1"], ["1000"] * 4]
