"""What the two forms of the table of system calls decide, by interpreters of their own."""

import errno
import json
import struct
from functools import cache

from llm_sandbox_mcp.backends import bpf
from llm_sandbox_mcp.backends.calls import CALLS
from llm_sandbox_mcp.backends.containers.seccomp import profile

ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
KILL, ALLOW = "kill", "allow"
RULES = json.loads(profile())["syscalls"]


@cache
def instructions(machine: str) -> list[tuple[int, int, int, int]]:
    return list(struct.iter_unpack("<HBBI", bpf.program(machine)))


def judge(machine: str, call: int | str, *arguments: int, architecture: int | None = None) -> str:
    """The verdict of the filter on a call: kill, allow, or the name of an errno."""
    number = CALLS[call].numbers[machine] if isinstance(call, str) else call
    architecture = ARCHITECTURE[machine] if architecture is None else architecture
    padded = (*arguments, *[0] * (6 - len(arguments)))
    data = struct.pack("<IIQ6Q", number, architecture, 0, *padded)
    program, position, accumulator = instructions(machine), 0, 0
    while True:
        operation, then, otherwise, value = program[position]
        position += 1
        if operation == 0x20:
            accumulator = struct.unpack_from("<I", data, value)[0]
        elif operation == 0x54:
            accumulator &= value
        elif operation in (0x15, 0x35):
            holds = accumulator == value if operation == 0x15 else accumulator >= value
            position += then if holds else otherwise
        else:
            assert operation == 0x06, f"unexpected operation {operation:#x}"
            if value & 0xFFFF0000 == 0x50000:
                return errno.errorcode[value & 0xFFFF]
            return {0x80000000: KILL, 0x7FFF0000: ALLOW}[value]


def allows(call: str, *arguments: int) -> bool:
    """Whether the profile of containers allows a call, as an engine reads it."""
    for rule in RULES:
        if call in rule["names"] and rule["action"] == "SCMP_ACT_ALLOW":
            assert all(one["op"] == "SCMP_CMP_MASKED_EQ" for one in rule["args"])
            if all(arguments[one["index"]] & one["value"] == one["valueTwo"] for one in rule["args"]):
                return True
    return False
