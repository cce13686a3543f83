"""The table of system calls as a BPF program for seccomp; a call that is not in the table returns ENOSYS."""

from __future__ import annotations

import struct
from collections.abc import Hashable, Mapping
from errno import ENOSYS, EPERM
from itertools import groupby

from .calls import CALLS, LOW_HALF, MACHINES, Call, Rule, Verdict

# Kernel ABI, https://docs.kernel.org/userspace-api/seccomp_filter.html: AUDIT_ARCH_* of linux/audit.h, and the offsets
# in struct seccomp_data. Both machines are little-endian, so the low half of an argument comes first.
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16

_KILL_PROCESS, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_EQUAL, _AT_LEAST = 0x15, 0x35

_Ranges = tuple[tuple[int, Verdict], ...]
"""Numbers of calls, each with the verdict on this call and on those after it, up to the next."""


def program(machine: str, calls: Mapping[str, Call] = CALLS) -> bytes:
    """The filter for `machine` (one of `MACHINES`): an array of struct sock_filter, 8 bytes each.

    ValueError for a machine whose numbers are not in the table.
    """
    if machine not in MACHINES:
        raise ValueError(f"there is no system call filter for {machine!r}, only for {', '.join(MACHINES)}")
    verdicts = {call.numbers[machine]: call.verdict for call in calls.values() if machine in call.numbers}
    rules = [verdict for verdict in dict.fromkeys(verdicts.values()) if isinstance(verdict, tuple)]
    errors = sorted({EPERM, ENOSYS, *(condition.error for rule in rules for case in rule for condition in case)})
    code = _Assembler()
    code.load(_ARCH_AT)
    code.test(_EQUAL, _AUDIT_ARCH[machine], otherwise="kill")
    code.load(_NUMBER_AT)
    _search(code, _ranges(verdicts))
    for rule in rules:
        _check(code, rule)
    for label, action in (("kill", _KILL_PROCESS), *((error, _ERRNO | error) for error in errors)):
        code.label(label)
        code.answer(action)
    return code.assemble()


def _ranges(verdicts: Mapping[int, Verdict]) -> _Ranges:
    """On x86_64 the last range contains the x32 table: its numbers have bit 30 set, and before Linux 5.4 the numbers
    512-547 reach its handlers without that bit."""
    groups = groupby(range(max(verdicts) + 2), key=lambda number: verdicts.get(number, ENOSYS))
    return tuple((next(numbers), verdict) for verdict, numbers in groups)


def _search(code: _Assembler, ranges: _Ranges) -> None:
    """A binary search: before Linux 5.11, the filter runs for every call; since then, not for those always allowed."""
    code.label(ranges)
    middle = len(ranges) // 2
    below, above = ranges[:middle], ranges[middle:]
    then, otherwise = (part if len(part) > 1 else part[0][1] for part in (above, below))
    code.test(_AT_LEAST, above[0][0], then, otherwise)
    for part in (below, above):
        if len(part) > 1:
            _search(code, part)


def _check(code: _Assembler, rule: Rule) -> None:
    """Allows the call in the first case that holds; only the low halves of arguments are loaded."""
    code.label(rule)
    case, others = rule[0], rule[1:]
    for condition in case:
        missed = others or condition.error
        code.load(_ARGUMENTS_AT + 8 * condition.argument)
        if condition.mask != LOW_HALF:
            code.mask(condition.mask)
        if condition.negated:
            for value in condition.values:
                code.test(_EQUAL, value, then=missed)
        else:
            *values, last = condition.values
            held = (rule, condition)
            for value in values:
                code.test(_EQUAL, value, then=held)
            code.test(_EQUAL, last, otherwise=missed)
            code.label(held)
    code.answer(_ALLOW)
    if others:
        _check(code, others)


class _Assembler:
    """Instructions with jump targets that have labels; a target of None is the next instruction."""

    def __init__(self) -> None:
        self._code: list[tuple[int, int, Hashable, Hashable]] = []
        self._labels: dict[Hashable, int] = {}

    def label(self, label: Hashable) -> None:
        self._labels[label] = len(self._code)

    def load(self, offset: int) -> None:
        self._code.append((_LOAD, offset, None, None))

    def mask(self, bits: int) -> None:
        self._code.append((_AND, bits, None, None))

    def test(self, comparison: int, value: int, then: Hashable = None, otherwise: Hashable = None) -> None:
        self._code.append((comparison, value, then, otherwise))

    def answer(self, action: int) -> None:
        self._code.append((_RETURN, action, None, None))

    def assemble(self) -> bytes:
        """BPF jumps only forward, and at most 255 instructions; `struct` raises an error for other distances."""
        return b"".join(
            struct.pack("<HBBI", operation, self._distance(position, then), self._distance(position, otherwise), value)
            for position, (operation, value, then, otherwise) in enumerate(self._code)
        )

    def _distance(self, position: int, label: Hashable) -> int:
        return 0 if label is None else self._labels[label] - position - 1
