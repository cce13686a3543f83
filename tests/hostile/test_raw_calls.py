"""Attack: every system call, through other call tables, too, and requests that load kernel modules. Outcome: refused."""

import errno
import json
import platform

import pytest

from llm_sandbox_mcp.backends.calls import ALWAYS, CALLS
from tests.hostile.calls import ATTEMPT, EACH, REPORT
from tests.hostile.conftest import Arena, Tolerated

pytestmark = pytest.mark.anyio

OTHER_TABLES = """
import mmap, struct
def apart(name, answer):
    # In a child, which is ended where the kernel does not take the call.
    reader, writer = os.pipe()
    if os.fork() == 0:
        number = answer()
        os.write(writer, (errno.errorcode.get(-number, '?') if number < 0 else 'done').encode())
        os._exit(0)
    os.close(writer)
    attempts[name] = os.read(reader, 99).decode() or 'killed'
    os.close(reader)
    os.wait()
def raw(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    return result if result >= 0 else -ctypes.get_errno()
def machine_code(code):
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(code + b'\\xc3')
    return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
if platform.machine() == 'x86_64':
    for name, number in (('getpid', 20), ('unshare', 310)):
        # push rbx; mov eax, number; mov ebx, CLONE_NEWUSER; int 0x80; pop rbx
        code = b'\\x53\\xb8' + struct.pack('<I', number) + b'\\xbb' + struct.pack('<I', 0x10000000) + b'\\xcd\\x80\\x5b'
        apart(f'{name} of 32 bits', lambda: machine_code(code))
    for number in (39, 1, 272, 520, 547):
        apart(f'x32 call {number}', lambda: raw(0x40000000 | number, 1, 0, 0))
    for number in (512, 520, 547):
        apart(f'x32 call {number} by its bare number', lambda: raw(number, 1, 0, 0))
for number in (470, 471, 600, 2**31 - 1, -1, 2**32 + 470):
    apart(f'unknown call {number}', lambda: raw(number))
"""


NEWEST = 450
"""Calls above this number may be missing in the library by which an engine makes its filter, and in the kernel."""
REFUSED_BY_THE_KERNEL = {"futex", "get_thread_area", "map_shadow_stack", "set_thread_area", "setgroups"}
"""Calls that some kernels do not have, or do not permit with the arguments of the test."""


async def test_every_call_is_allowed_or_refused_as_in_the_table(arena: Arena, tolerated: Tolerated) -> None:
    """Calls with rules for their arguments have tests of their own."""
    numbers = {
        name: call.numbers[platform.machine()]
        for name, call in CALLS.items()
        if call.numbers.get(platform.machine(), NEWEST + 1) <= NEWEST
        and (isinstance(call.verdict, int) or call.verdict == ALWAYS)
        and name not in REFUSED_BY_THE_KERNEL
    }
    answers = json.loads(await arena.check(f"import sys\nsys.argv = ['', {json.dumps(numbers)!r}]\n{EACH}", timeout=20))
    assert answers.keys() == numbers.keys()
    found = set()
    for name, answer in answers.items():
        verdict = CALLS[name].verdict
        if answer != errno.errorcode[verdict] if isinstance(verdict, int) else answer in ("EPERM", "ENOSYS"):
            found.add(f"{name}: {answer}")
    tolerated(found)


async def test_no_other_table_of_system_calls_can_be_reached(arena: Arena, tolerated: Tolerated) -> None:
    attempts = json.loads(await arena.check(ATTEMPT + OTHER_TABLES + REPORT))
    assert len(attempts) >= 6
    tolerated(f"{name}: {how}" for name, how in attempts.items() if how not in ("killed", "ENOSYS", "EPERM"))


async def test_no_request_to_a_socket_loads_a_kernel_module(arena: Arena, tolerated: Tolerated) -> None:
    """The kernel loads `bridge` and `8021q` for any caller, before it checks what the caller is allowed to do."""
    output = await arena.check(
        ATTEMPT
        + """
import socket
number = 16 if platform.machine() == 'x86_64' else 29
requests = {'SIOCGIFBR': 0x8940, 'SIOCSIFBR': 0x8941, 'SIOCGIFVLAN': 0x8982, 'SIOCSIFVLAN': 0x8983,
            'SIOCBRADDBR': 0x89A0, 'SIOCBRDELBR': 0x89A1, 'SIOCBRADDIF': 0x89A2, 'SIOCBRDELIF': 0x89A3}
for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
    for high in (0, 1 << 32):
        with socket.socket(family) as one:
            for name, request in requests.items():
                call(f'{name}, family {family:d}, {high:#x}', number, one.fileno(), high | request, (ctypes.c_ulong * 64)())
"""
        + REPORT
    )
    attempts = json.loads(output)
    assert len(attempts) == 48
    tolerated(f"{name}: {how}" for name, how in attempts.items() if how != "EPERM")
