"""Attack: changing the file system tree. Outcome: EPERM."""

import json

import pytest

from tests.hostile.calls import ATTEMPT, REPORT
from tests.hostile.conftest import Arena

pytestmark = pytest.mark.anyio


@pytest.mark.in_turns
async def test_every_call_that_changes_the_tree_is_refused(arena: Arena) -> None:
    output = await arena.check(
        ATTEMPT
        + """
x86 = platform.machine() == 'x86_64'
text = ctypes.c_char_p
os.mkdir('/tmp/at')
for name, numbers, arguments in (
    ('mount tmpfs', (165, 40), (text(b'none'), text(b'/tmp/at'), text(b'tmpfs'), 0, None)),
    ('mount bind', (165, 40), (text(b'/'), text(b'/tmp/at'), None, 4096, None)),
    ('mount remount', (165, 40), (None, text(b'/'), None, 32 | 4096, None)),
    ('umount2', (166, 39), (text(b'/sandbox'), 2)),
    ('pivot_root', (155, 41), (text(b'/tmp'), text(b'/tmp/at'))),
    ('chroot', (161, 51), (text(b'/tmp'),)),
    ('fsopen', (430, 430), (text(b'tmpfs'), 0)),
    ('open_tree', (428, 428), (-100, text(b'/'), 1)),
    ('move_mount', (429, 429), (-100, text(b'/tmp'), -100, text(b'/tmp/at'), 0)),
    ('fspick', (433, 433), (-100, text(b'/'), 0)),
    ('mount_setattr', (442, 442), (-100, text(b'/'), 0, text(b'\\1' + bytes(31)), 32)),
    ('swapon', (167, 224), (text(b'/tmp/at'), 0)),
    ('quotactl', (179, 60), (0, None, 0, None)),
    ('handle', (304, 265), (-100, None, 0)),
    ('disk', (133, 33) if x86 else (33, 33), (text(b'/tmp/disk'), 0o60600, 0x800) if x86 else (-100, text(b'/tmp/disk'), 0o60600, 0x800)),
    ('kernel memory', (259, 33), (-100, text(b'/tmp/mem'), 0o20600, 0x101)),
):
    call(name, numbers[0 if x86 else 1], *arguments)
"""
        + REPORT
    )
    attempts = json.loads(output)
    assert set(attempts.values()) == {"EPERM"}, attempts
