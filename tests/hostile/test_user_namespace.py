"""Attack: making a user namespace within the sandbox, which would give every capability. Outcome: denied."""

import json

import pytest

from tests.hostile.calls import ATTEMPT, REPORT
from tests.hostile.conftest import Arena, Tolerated

pytestmark = pytest.mark.anyio


@pytest.mark.in_turns
async def test_no_namespace_can_be_made_or_entered(arena: Arena, tolerated: Tolerated) -> None:
    output = await arena.check(
        ATTEMPT
        + """
def apart(name, *arguments):
    # In a child, for one that succeeds gives rights to what comes after it; a copy that it makes must not go on.
    reader, writer = os.pipe()
    if os.fork() == 0:
        child = os.getpid()
        call(name, *arguments)
        if os.getpid() == child:
            os.write(writer, attempts[name].encode())
        os._exit(0)
    attempts[name] = os.read(reader, 99).decode()
    os.wait()
flags = {'mount': 0x20000, 'cgroup': 0x2000000, 'uts': 0x4000000, 'ipc': 0x8000000, 'user': 0x10000000, 'pid': 0x20000000,
         'net': 0x40000000, 'time': 0x80}
unshare, clone, setns, clone3 = (272, 56, 308, 435) if platform.machine() == 'x86_64' else (97, 220, 268, 435)
for name, flag in flags.items():
    apart(f'unshare {name}', unshare, flag)
    if name != 'time':
        apart(f'clone {name}', clone, flag | 17, 0, 0, 0, 0)
        apart(f'clone {name}, high bits set', clone, flag | 17 | 1 << 40, 0, 0, 0, 0)
apart('unshare all', unshare, 0x7E020080)
apart('clone3', clone3, None, 88)
for name in ('user', 'mnt', 'net', 'pid', 'ipc'):
    apart(f'setns {name}', setns, os.open(f'/proc/self/ns/{name}', os.O_RDONLY), 0)
"""
        + REPORT
    )
    attempts = json.loads(output)
    assert len(attempts) > 25
    tolerated(f"{name}: {how}" for name, how in attempts.items() if how != ("ENOSYS" if name == "clone3" else "EPERM"))


async def test_tools_that_make_namespaces_fail(arena: Arena, tolerated: Tolerated) -> None:
    result = await arena.attack(
        "unshare -r id 2>&1; unshare -U true 2>&1; command -v bwrap >/dev/null && bwrap --ro-bind / / id 2>&1; true",
        language="bash",
    )
    tolerated(line for line in result.stdout.text.splitlines() if "uid=0" in line)


STATUS = """
import json
status = dict(line.rstrip('\\n').split(':\\t', 1) for line in open('/proc/self/status') if ':\\t' in line)
"""


async def test_the_code_has_no_capability_and_is_an_ordinary_user(arena: Arena) -> None:
    output = await arena.check(
        STATUS
        + """
print(json.dumps([status[key] for key in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp')]))
print(json.dumps([status['Uid'].split(), status['Gid'].split(), status['Groups'].split()]))
"""
    )
    capabilities, users = (json.loads(line) for line in output.splitlines())
    assert capabilities == ["0" * 16] * 5 + ["1", "2"]
    user = users[0][0]
    assert arena.is_uid_of_code(user)
    assert users[:2] == [[user] * 4] * 2
    assert not {"0"} & set(users[2])


async def test_no_other_user_of_the_machine_is_mapped(arena: Arena) -> None:
    output = await arena.check("print(open('/proc/self/uid_map').read().split()[::2])")
    assert output == "['1000', '1']\n"
