"""Attack: writing the kernel's settings. Outcome: denied."""

import json

import pytest

from tests.hostile.calls import ATTEMPT
from tests.hostile.conftest import PROCESSES, Arena, Tolerated

pytestmark = pytest.mark.anyio


@pytest.mark.in_turns
async def test_no_setting_of_the_kernel_can_be_written(arena: Arena, tolerated: Tolerated) -> None:
    output = await arena.check(
        ATTEMPT
        + """
for path in ('sys/kernel/core_pattern', 'sys/kernel/modprobe', 'sys/kernel/hostname', 'sys/kernel/randomize_va_space',
             'sys/vm/overcommit_memory', 'sys/vm/drop_caches', 'sys/fs/suid_dumpable', 'sys/net/ipv4/ip_forward',
             'sys/fs/binfmt_misc/register', 'sys/user/max_user_namespaces', 'sysrq-trigger', 'irq/default_smp_affinity',
             'self/uid_map', 'self/loginuid', '1/oom_score_adj', 'acpi/wakeup', 'mtrr', 'timer_stats', 'bus/pci/devices'):
    attempt(path, write, '/proc/' + path, '0')
for root in ('/proc/sys', '/sys'):
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            attempt(path, os.open, path, os.O_WRONLY)
for folder, folders, names in os.walk('/proc'):
    if folder == '/proc':
        # What a process has of itself, and what is tried above.
        folders[:] = [name for name in folders if not name.isdigit() and name not in ('sys', 'self', 'thread-self')]
    for name in names:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            attempt(path, os.open, path, os.O_WRONLY)
attempt('adj below its own', write, '/proc/self/oom_score_adj', '-1000')
"""
        + """
print(json.dumps([len(attempts), [name for name, how in attempts.items() if how == 'done']]))
"""
    )
    count, done = json.loads(output)
    assert count > 100
    tolerated(done)


async def test_sysfs_and_control_groups_are_not_there(arena: Arena, tolerated: Tolerated) -> None:
    output = await arena.check(
        "import json, os\nprint(json.dumps([path for path in ('/sys', '/sys/kernel', '/sys/fs/cgroup', '/proc/sys/../../sys')"
        " if os.path.exists(path)]))"
    )
    tolerated(json.loads(output))


async def test_nothing_in_proc_reveals_the_host(arena: Arena, tolerated: Tolerated) -> None:
    output = await arena.check("""
import json, os
sizes = {}
for name in ('kallsyms', 'kcore', 'interrupts', 'cmdline', 'config.gz', 'keys', 'key-users', 'sched_debug', 'timer_list',
             'iomem', 'ioports', 'modules', 'locks', 'softirqs', 'kmsg', 'kpagecount', 'slabinfo', 'vmallocinfo'):
    try:
        sizes[name] = len(open(f'/proc/{name}', 'rb').read(100))
    except OSError:
        sizes[name] = 0
for name in ('acpi', 'asound', 'bus', 'driver', 'fs', 'irq', 'pressure', 'scsi'):
    sizes[name] = len(os.listdir(f'/proc/{name}')) if os.path.isdir(f'/proc/{name}') else 0
print(json.dumps(sizes))
""")
    tolerated(name for name, size in json.loads(output).items() if size)


async def test_only_its_own_processes_can_be_seen(arena: Arena, backend_name: str) -> None:
    output = await arena.check("""
import os
environments, commands = [], []
for name in filter(str.isdigit, os.listdir('/proc')):
    for kind, found in (('environ', environments), ('cmdline', commands)):
        try:
            found.append(open(f'/proc/{name}/{kind}', errors='replace').read())
        except OSError:
            pass
print(len(commands), any("SANDBOX_TEST_CANARY" in text for text in environments), any("/tmp/" in text for text in commands))
""")
    assert output.split() == [str(PROCESSES[backend_name]), "False", "False"]
