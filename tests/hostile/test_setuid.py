"""Attack: programs with the setuid bit. Outcome: no privileges are gained."""

import json

import pytest

from tests.hostile.calls import ATTEMPT, REPORT
from tests.hostile.conftest import Arena

pytestmark = pytest.mark.anyio


@pytest.mark.in_turns
async def test_no_call_gives_another_user(arena: Arena) -> None:
    output = await arena.check(
        ATTEMPT
        + """
for uid in (0, 1, 65534, 200_000):
    attempt(f'setuid {uid}', os.setuid, uid)
    attempt(f'setresuid {uid}', os.setresuid, uid, uid, uid)
    attempt(f'setgid {uid}', os.setgid, uid)
    attempt(f'setgroups {uid}', os.setgroups, [uid])
open('/tmp/file', 'w').close()
attempt('chown', os.chown, '/tmp/file', 0, 0)
attempt('chroot', os.chroot, '/tmp')
attempt('priority', os.setpriority, os.PRIO_PROCESS, 0, -5)
"""
        + REPORT
    )
    attempts = json.loads(output)
    assert {name: how for name, how in attempts.items() if how == "done"} == {}


async def test_its_own_setuid_file_changes_nothing(arena: Arena) -> None:
    output = await arena.check("""
import os, shutil, subprocess
print(os.getuid())
for folder in ('/sandbox', '/tmp', '/home', '/dev/shm'):
    path = f'{folder}/id'
    shutil.copy('/usr/bin/id', path)
    os.chmod(path, 0o6755)
    try:
        print(subprocess.run([path, '-u'], capture_output=True, text=True).stdout.strip())
    except PermissionError:
        assert folder == '/dev/shm'  # of an engine, where nothing can be executed at all
""")
    (uid,) = set(output.split())
    assert arena.is_uid_of_code(uid)


async def test_the_systems_setuid_programs_give_nothing(arena: Arena) -> None:
    output = await arena.check(
        """
import os, subprocess
for folder in ('/usr/bin', '/usr/sbin', '/usr/lib'):
    for entry in os.scandir(folder):
        if entry.is_file(follow_symlinks=False) and entry.stat().st_mode & 0o6000:
            try:
                done = subprocess.run([entry.path, '-c', 'id'], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2)
                print(done.stdout)
            except (OSError, subprocess.TimeoutExpired):
                pass
""",
        timeout=20,
    )
    assert "uid=0" not in output
