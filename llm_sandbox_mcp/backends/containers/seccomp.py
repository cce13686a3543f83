"""The table of system calls as a seccomp profile in JSON for Docker and Podman; other calls return EPERM.

The engines' own profiles allow more: keyrings, io_uring, every socket family, and on Podman user namespaces. The
format: https://github.com/opencontainers/runtime-spec/blob/main/config-linux.md#seccomp.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from errno import ENOSYS
from functools import cache
from itertools import product
from typing import Any

from ..calls import CALLS, Condition, Verdict

_Match = tuple[int, int, int]
"""The number of an argument, a mask, and the value that the argument has with the mask applied."""


@cache
def profile() -> str:
    """The profile, for both architectures."""
    names: dict[Verdict, list[str]] = {}
    for name, call in CALLS.items():
        names.setdefault(call.verdict, []).append(name)
    rules: list[dict[str, Any]] = [{"names": names[ENOSYS], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS}]
    for verdict, those in names.items():
        for case in verdict if isinstance(verdict, tuple) else ():
            rules += [_allow(those, matches) for matches in product(*map(_matches, case))]
    return json.dumps(
        {
            "defaultAction": "SCMP_ACT_ERRNO",
            "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"],
            "syscalls": rules,
        },
        separators=(",", ":"),
    )


def _allow(names: list[str], matches: Iterable[_Match]) -> dict[str, Any]:
    arguments = [
        {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"} for index, mask, value in matches
    ]
    return {"names": names, "action": "SCMP_ACT_ALLOW", "args": arguments}


def _matches(condition: Condition) -> Iterator[_Match]:
    """What together has the same meaning as the condition."""
    if condition.negated:
        found = _all_but(condition.values, condition.mask)
    else:
        found = ((condition.mask, value) for value in condition.values)
    return ((condition.argument, mask, value) for mask, value in found)


def _all_but(refused: Sequence[int], bits: int) -> Iterator[tuple[int, int]]:
    """Masks and values that match every number of these bits except the refused ones: a match cannot negate."""
    if not refused:
        yield 0, 0
    elif bits:
        top = 1 << bits.bit_length() - 1
        for bit in (0, top):
            for mask, value in _all_but([value for value in refused if value & top == bit], bits ^ top):
                yield mask | top, value | bit
