"""Attack: locking and inspecting the files that all sandboxes share. Outcome: nobody waits for such a lock, and the
mounts reveal nothing of the host except where the server's own folders are."""

from pathlib import Path

import pytest

from tests.hostile.conftest import Arena

pytestmark = pytest.mark.anyio

LOCK = """
import fcntl, os
kept, locked = [], 0
for top in ('/opt', '/etc', '/usr/lib/python3', '/usr/bin'):
    for folder, _, files in os.walk(top):
        for path in [folder, *(os.path.join(folder, name) for name in files)][:40]:
            if locked >= 3000 or not (os.path.isfile(path) or os.path.isdir(path)):
                continue
            try:
                kept.append(os.open(path, os.O_RDONLY))
                fcntl.flock(kept[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
                locked += 1
            except OSError:
                pass
print(locked)
"""


async def test_locks_on_all_shared_files_keep_nobody_waiting(arena: Arena) -> None:
    locked = await arena.attack(LOCK)
    assert locked.status == "ok" and int(locked.stdout.text) > 10, locked
    await arena.check("import json")
    # Warming checks all prepared environments, and removes those that nobody uses.
    await arena.service.warm(["python", "bash"])


MOUNTS = """
import re
for line in open('/proc/self/mountinfo'):
    fields = line.split(' - ')[0].split()
    print(re.sub(r'//deleted$', '', fields[3]), fields[4])
"""


async def test_mounts_reveal_no_folders_of_the_host_except_the_systems_and_the_servers(arena: Arena) -> None:
    if arena.backend != "embedded":
        pytest.skip("an engine mounts what it needs from its own folders; this is promised only for bubblewrap")
    folders = arena.service.profile.server
    # The root of a mount is a path within its own file system; bubblewrap's root is mounted from below the root of one.
    system = ("/", "/newroot", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/null", "/sys")
    ours = tuple(f"/{Path(folder).parent.name}/{Path(folder).name}/" for folder in (folders.cache, folders.runtime))
    shown = [line.split() for line in (await arena.check(MOUNTS)).splitlines()]
    assert any(one in root for root, _ in shown for one in ours)
    known = [*ours, *(f"/{device} /dev/{device}" for device in ("zero", "full", "random", "urandom", "tty"))]
    strange = [mount for mount in shown if mount[0] not in system and not any(one in " ".join(mount) for one in known)]
    assert not strange
