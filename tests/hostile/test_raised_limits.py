"""Attack: code that raises its own limits, with every call that could do so. Outcome: refused, and each limit still
applies."""

import json

import pytest

from tests.hostile.calls import ATTEMPT, REPORT
from tests.hostile.conftest import Arena

pytestmark = pytest.mark.anyio

RAISE = (
    ATTEMPT
    + """
import resource
def put(path, text):
    file = os.open(path, os.O_WRONLY)
    try:
        os.write(file, text)
    finally:
        os.close(file)
def hard(name):
    return resource.getrlimit(getattr(resource, name))[1]
for name in ('RLIMIT_FSIZE', 'RLIMIT_CORE', 'RLIMIT_NOFILE', 'RLIMIT_NPROC', 'RLIMIT_NICE', 'RLIMIT_RTPRIO'):
    if hard(name) == resource.RLIM_INFINITY:
        continue
    number = getattr(resource, name)
    endless = (ctypes.c_ulong * 2)(2**64 - 1, 2**64 - 1)
    for wanted in (hard(name) + 1, resource.RLIM_INFINITY):
        try:
            resource.setrlimit(number, (wanted, wanted))
            attempts[f'{name} to {wanted}'] = 'done'
        except (OSError, ValueError):
            attempts[f'{name} to {wanted}'] = 'EPERM'
    for process in (0, 1, os.getppid()):
        call(f'{name} of {process}', 302, process, number, ctypes.addressof(endless), 0)
attempt('nice', os.setpriority, os.PRIO_PROCESS, 0, -1)
attempt('nice of all', os.setpriority, os.PRIO_USER, os.getuid(), -1)
for policy in (os.SCHED_FIFO, os.SCHED_RR):
    attempt(f'scheduler {policy}', os.sched_setscheduler, 0, policy, os.sched_param(1))
attempt('badness', put, '/proc/self/oom_score_adj', b'-1000')
attempt('badness in the old way', put, '/proc/self/oom_adj', b'-17')
for folder, _, files in os.walk('/sys/fs/cgroup'):
    for name in files:
        if name.endswith(('max', 'limit_in_bytes', 'quota_us', 'shares', 'weight', 'procs', 'threads', 'tasks')):
            attempt(f'{folder}/{name}', put, f'{folder}/{name}', b'0' if name.endswith(('procs', 'tasks', 'threads')) else b'-1')
"""
)


async def test_no_call_raises_a_limit(arena: Arena) -> None:
    found = json.loads(await arena.check(RAISE + REPORT))
    assert len(found) > 20
    assert {name: how for name, how in found.items() if how == "done"} == {}


SMALL = {"limits": {"file_size": 1 << 20, "cpu_time": 1.0}}
AFTER = {
    "file_limit": "open('large', 'wb').write(bytes(3 << 20))",
    "disk_limit": "for number in range(100): open(f'{number}', 'wb').write(bytes(1 << 19))",
    "cpu_limit": "while True: pass",
    "out_of_memory": "held = []\nwhile True: held.append(bytearray(1 << 20))",
    "process_limit": "import subprocess\nwhile True: subprocess.Popen(['sleep', '1000'])",
}


@pytest.mark.usefixtures("control_groups")
@pytest.mark.parametrize("limits", [SMALL], indirect=True)
@pytest.mark.parametrize("status", AFTER)
async def test_each_limit_still_applies_after_that(arena: Arena, status: str) -> None:
    result = await arena.attack(RAISE + AFTER[status])
    expected = "error" if status == "process_limit" and not arena.counts_processes() else status
    assert result.status == expected, result


FLAGS = {
    "bash": """
for flag in f u v m d s t; do ulimit -S -$flag unlimited; ulimit -H -$flag unlimited; done 2>/dev/null
nice -n -20 tail /dev/zero; false
""",
    "javascript": """
const held = 'const held = []; for (;;) held.push(new Array(1e5).fill(1.5))';
const { status, signal } = require('child_process').spawnSync(
  process.execPath, ['--max-old-space-size=65536', '--max-semi-space-size=1024', '-e', held], { stdio: 'inherit' });
throw new Error(`${status} ${signal}`);
""",
}


@pytest.mark.usefixtures("control_groups")
@pytest.mark.parametrize("language", FLAGS)
async def test_a_language_that_is_allowed_more_memory_by_code_does_not_get_it(arena: Arena, language: str) -> None:
    result = await arena.attack(FLAGS[language], language=language)
    assert result.status == "out_of_memory", result
    assert any("the memory limit of 128MiB was reached" in note for note in result.notes), result
