"""Attack: objects that the kernel keeps separately from processes: shared memory, queues, keys. Outcome: they are
private, and gone with the sandbox."""

import json

import pytest

from tests.hostile.calls import ATTEMPT, REPORT
from tests.hostile.conftest import Arena, Tolerated

pytestmark = pytest.mark.anyio

LEAVE = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
librt = ctypes.CDLL('librt.so.1', use_errno=True)
print([
    libc.shmget(4711, 4096, 0o1666) >= 0,
    libc.msgget(4711, 0o1666) >= 0,
    libc.semget(4711, 1, 0o1666) >= 0,
    librt.mq_open(b'/queue', os.O_CREAT | os.O_RDWR, 0o666, None) >= 0,
    open('/dev/shm/left', 'w').write('x') == 1,
])
"""
LOOK = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
librt = ctypes.CDLL('librt.so.1', use_errno=True)
print([
    libc.shmget(4711, 4096, 0) >= 0,
    libc.msgget(4711, 0) >= 0,
    libc.semget(4711, 1, 0) >= 0,
    librt.mq_open(b'/queue', os.O_RDWR) >= 0,
    os.path.exists('/dev/shm/left'),
])
"""


@pytest.mark.in_turns
async def test_no_sandbox_finds_what_another_leaves_in_the_kernel(arena: Arena) -> None:
    output = await arena.check(LEAVE, arena.neighbour)
    assert output.startswith("[True, True, True,") and output.endswith("True]\n"), output
    assert await arena.check(LOOK) == "[False, False, False, False, False]\n"


async def test_what_a_sandbox_leaves_in_the_kernel_is_gone_with_it(arena: Arena) -> None:
    session = (await arena.attack(LEAVE)).session_id
    await arena.service.sessions.close(session)
    assert await arena.check(LOOK) == "[False, False, False, False, False]\n"


async def test_keys_and_the_interfaces_that_exploits_use_are_refused(arena: Arena, tolerated: Tolerated) -> None:
    output = await arena.check(
        ATTEMPT
        + """
text = ctypes.c_char_p
x86 = platform.machine() == 'x86_64'
for name, numbers, arguments in (
    ('add_key', (248, 217), (text(b'user'), text(b'name'), text(b'x'), 1, -4)),
    ('request_key', (249, 218), (text(b'user'), text(b'name'), None, -4)),
    ('keyctl', (250, 219), (0, -3, 0)),
    ('bpf', (321, 280), (0, None, 0)),
    ('userfaultfd', (323, 282), (1,)),
    ('perf_event_open', (298, 241), (None, 0, -1, -1, 0)),
    ('io_uring_setup', (425, 425), (1, None)),
    ('io_setup', (206, 0), (1, ctypes.byref(ctypes.c_ulong()))),
    ('kexec_load', (246, 104), (0, 0, None, 0)),
    ('init_module', (175, 105), (None, 0, text(b''))),
    ('reboot', (169, 142), (0xfee1dead, 672274793, 0, None)),
    ('syslog', (103, 116), (3, None, 0)),
    ('settimeofday', (164, 170), (None, None)),
    ('fanotify_init', (300, 262), (0, 0)),
):
    call(name, numbers[0 if x86 else 1], *arguments)
"""
        + REPORT
    )
    attempts = json.loads(output)
    assert len(attempts) == 14
    tolerated(name for name, how in attempts.items() if how != ("ENOSYS" if name.startswith("io_") else "EPERM"))


async def test_the_next_user_of_a_closed_session_finds_nothing(arena: Arena) -> None:
    session = (
        await arena.attack(
            "for folder in ('/sandbox', '/home', '/tmp', '/dev/shm'): open(f'{folder}/mine', 'w').write('x')"
        )
    ).session_id
    await arena.service.sessions.close(session)
    output = await arena.check(
        "import os\nprint([f for f in ('/sandbox', '/home', '/tmp', '/dev/shm') if os.path.exists(f'{f}/mine')])"
    )
    assert output == "[]\n"
