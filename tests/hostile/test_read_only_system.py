"""Attack: writing outside the folders that code may write. Outcome: everything else is read-only."""

import json

import pytest

from tests.hostile.conftest import Arena, Tolerated

pytestmark = pytest.mark.anyio

TRY = """
import errno, json, os
attempts = {}
def attempt(name, call, *arguments):
    try:
        call(*arguments)
        attempts[name] = 'done'
    except OSError as error:
        attempts[name] = errno.errorcode[error.errno]
"""


async def test_no_folder_of_the_system_can_be_written(arena: Arena, tolerated: Tolerated) -> None:
    output = await arena.check(
        TRY
        + """
for folder in ('/', '/usr', '/usr/bin', '/etc', '/dev', '/opt', '/opt/handlers', '/opt/handlers/python', '/opt/tools',
               '/opt/environments', '/proc', '/bin', '/lib', '/usr/lib/python3', '/run', '/var', '/var/tmp', '/mnt', '/root', '/sys',
               '/sys/fs/cgroup', '/sys/fs/cgroup/memory', '/sys/fs/cgroup/pids', '/dev/mqueue'):
    if os.path.isdir(folder):
        attempt(f'file in {folder}', open, f'{folder}/new-file', 'w')
        attempt(f'folder in {folder}', os.mkdir, f'{folder}/new-folder')
        attempt(f'link in {folder}', os.symlink, '/', f'{folder}/new-link')
        attempt(f'FIFO in {folder}', os.mkfifo, f'{folder}/new-fifo')
        attempt(f'mode of {folder}', os.chmod, folder, 0o777)
        attempt(f'name of {folder}', os.rename, folder, '/tmp/moved')
for path in ('/etc/passwd', '/etc/hosts', '/opt/init.py', '/opt/handlers/python/importlib_bootstrap/runner.py', '/usr/bin/env', '/usr/bin/tar',
             '/proc/cmdline'):
    if os.path.exists(path):
        attempt(f'content of {path}', open, path, 'r+')
        attempt(f'end of {path}', open, path, 'a')
        attempt(f'times of {path}', os.utime, path)
        attempt(f'{path} itself', os.unlink, path)
def write(path, text):
    with open(path, 'w') as file:
        file.write(text)
attempt('own user map', write, '/proc/self/uid_map', '0 0 1')
attempt('own group map', write, '/proc/self/gid_map', '0 0 1')
attempt('own groups', write, '/proc/self/setgroups', 'allow')
print(json.dumps(attempts))
"""
    )
    attempts = json.loads(output)
    assert len(attempts) > 60
    tolerated(name for name, result in attempts.items() if result == "done" and "/proc/cmdline" not in name)
    assert set(attempts.values()) <= {
        "EROFS",
        "EACCES",
        "EPERM",
        "EEXIST",
        "ENOENT",
        "EXDEV",
        "EBUSY",
        "ENOTDIR",
        "EINVAL",
        "done",
    }


async def test_the_only_devices_are_harmless_ones(arena: Arena, backend_name: str) -> None:
    output = await arena.check("import json, os\nprint(json.dumps(sorted(os.listdir('/dev'))))")
    assert set(json.loads(output)) <= {
        *("console", "core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty"),
        *("urandom", "zero"),
        *(("mqueue",) if backend_name != "embedded" else ()),
    }


async def test_only_its_own_folders_are_writable_mounts(arena: Arena, tolerated: Tolerated) -> None:
    output = await arena.check("""
import json
mounts = {}
for line in open('/proc/self/mountinfo'):
    fields = line.split()
    mounts[fields[4]] = fields[5].split(',')
print(json.dumps(mounts))
""")
    mounts = json.loads(output)
    writable = {place for place, options in mounts.items() if "rw" in options}
    pseudo = {place for place in writable if place.startswith(("/proc", "/dev/")) and place != "/dev/shm"}
    own = {"/sandbox", "/home", "/tmp", "/dev/shm"}
    assert own <= writable
    loose = {f"{place} without {option}" for place in own for option in {"nosuid", "nodev"} - set(mounts[place])}
    setuid = {"setuid programs elsewhere"} if any("nosuid" not in options for options in mounts.values()) else set()
    tolerated(writable - pseudo - own | setuid | loose)


@pytest.mark.in_turns
async def test_raw_writes_to_devices_and_disks_fail(arena: Arena) -> None:
    result = await arena.attack(
        "for target in /dev/sda /dev/vda /dev/mem /dev/kmem /dev/kmsg /dev/port / /dev; do\n"
        "  dd if=/dev/zero of=$target bs=512 count=1 status=none 2>/dev/null && echo written $target\ndone; true",
        language="bash",
    )
    assert result.status == "ok"
    assert result.stdout.text == ""
