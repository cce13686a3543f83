"""Landlock by itself: the rules for PID 1 on each kernel, and what a process can do if only Landlock confines it."""

import json
import os
import secrets
import socket
import subprocess
from pathlib import Path

import pytest

from llm_sandbox_mcp.backends.embedded import init, landlock

PYTHON = "/usr/bin/python3"
FILES = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16, 6: 16, 7: 16, 8: 16}
"""The number of kinds of file access that each version of the kernel's interface has."""
VERSIONS = sorted(FILES)
HOST = """
import ctypes, errno, json, os, socket, sys
sys.path.insert(0, sys.argv[1])
import init
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)
kept = os.open('/', os.O_RDONLY | os.O_DIRECTORY)
init._confine(sys.argv[2])
found = {}
def attempt(name, function, *arguments):
    try:
        function(*arguments)
        found[name] = 'done'
    except OSError as error:
        found[name] = errno.errorcode[error.errno]
def mount():
    if libc.mount(b'none', b'/tmp', b'tmpfs', 0, None):
        raise OSError(ctypes.get_errno(), '')
def trace():
    if libc.ptrace(16, int(sys.argv[4]), 0, 0):
        raise OSError(ctypes.get_errno(), '')
private = sys.argv[3]
attempt('read a file of the host', open, private)
attempt('read it through an open folder', lambda: os.open(private[1:], os.O_RDONLY, dir_fd=kept))
attempt('write it', open, private, 'r+')
attempt('make a file next to it', open, private + '2', 'w')
attempt('remove it', os.unlink, private)
attempt('run it as a program', os.execv, private, [private])
attempt('truncate it', os.truncate, private, 0)
attempt('write a program', open, '/usr/bin/env', 'r+')
attempt('make a device', os.mknod, f'/tmp/{os.getpid()}', 0o020666, os.makedev(1, 3))
attempt('mount', mount)
attempt('trace a process outside', trace)
attempt('signal a process outside', os.kill, int(sys.argv[4]), 0)
attempt('connect to an abstract socket', socket.socket(socket.AF_UNIX).connect, chr(0) + sys.argv[5])
def write_and_run():
    place = f'/tmp/{os.getpid()}'
    with open(place, 'w') as file:
        file.write('#!/bin/sh\\nexit 7\\n')
    os.chmod(place, 0o755)
    try:
        assert os.spawnv(os.P_WAIT, place, [place]) == 7
    finally:
        os.unlink(place)
attempt('write its own program and run it', write_and_run)
attempt('signal itself', os.kill, os.getpid(), 0)
attempt('read a program', open, '/usr/bin/env', 'rb')
attempt('write to /dev/null', open, '/dev/null', 'w')
print(json.dumps(found))
"""


def words(rules: str) -> list[int]:
    """The words of the structure that is passed to the kernel."""
    given = bytes.fromhex(rules.partition(",")[0])
    return [int.from_bytes(given[at : at + 8], "little") for at in range(0, len(given), 8)]


def test_without_landlock_pid_1_gets_no_rules() -> None:
    assert landlock.rules(0) == ""


@pytest.mark.parametrize("abi", VERSIONS)
def test_exactly_the_file_accesses_that_a_kernel_supports_are_handled(abi: int) -> None:
    files, *others = words(landlock.rules(abi))
    assert files == 2 ** FILES[abi] - 1
    # Networks stay unhandled: a rule names a port but no address, so it would also block the sandbox's own loopback.
    assert others == ([0, 0b11] if abi >= 6 else [])


@pytest.mark.parametrize("abi", VERSIONS)
def test_no_path_gets_a_right_that_the_kernel_does_not_handle(abi: int) -> None:
    _, _, *places = landlock.rules(abi).split(",")
    rights = {path: int(right) for path, _, right in (place.partition("=") for place in places)}
    assert all(right & ~(2 ** FILES[abi] - 1) == 0 for right in rights.values())
    changed = {path for path, right in rights.items() if right & 0b10}
    assert changed == {"/proc", "/dev", "/dev/shm", "/sandbox", "/home", "/tmp"}
    assert not any(right & (1 << 6 | 1 << 11) for right in rights.values()), "devices"


@pytest.mark.parametrize("abi", VERSIONS)
def test_restrictions_that_code_puts_on_itself_are_not_logged(abi: int) -> None:
    """LANDLOCK_RESTRICT_SELF_LOG_SUBDOMAINS_OFF, where the kernel has it."""
    assert landlock.rules(abi).split(",")[1] == ("4" if abi >= 7 else "0")


@pytest.mark.skipif(not landlock.version(), reason="this kernel has no Landlock")
def test_landlock_alone_leaves_a_process_only_its_own_folders_and_itself() -> None:
    private = Path("/var/tmp") / f"llm-sandbox-{secrets.token_hex(8)}"
    private.write_text("#!/bin/sh\n")
    private.chmod(0o755)
    name = secrets.token_hex(8)
    folder = str(Path(init.__file__).parent)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"\0{name}")
            listener.listen()
            rules = landlock.rules(landlock.version())
            argv = [PYTHON, "-I", "-S", "-c", HOST, folder, rules, str(private), str(os.getpid()), name]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env={}, check=False)
    finally:
        private.unlink()
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    own = {"write its own program and run it", "signal itself", "read a program", "write to /dev/null"}
    scoped = {"signal a process outside", "connect to an abstract socket"}
    assert {name for name, how in found.items() if how == "done"} == own | (
        set() if landlock.version() >= 6 else scoped
    )
    assert {how for name, how in found.items() if name not in own | scoped} <= {"EACCES", "EPERM"}
