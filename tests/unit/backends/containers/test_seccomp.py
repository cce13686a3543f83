"""The seccomp profile of containers: system calls that embedded sandboxes refuse are refused there too."""

import errno
import json
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llm_sandbox_mcp.backends.containers.seccomp import profile
from tests.unit.backends.verdicts import RULES, allows

WORDS = st.integers(0, 2**64 - 1)
NEW_NAMESPACES = 0x7E020000
REFUSED_REQUESTS = (0x5412, 0x541C, 0x5423, 0x8940, 0x8941, 0x8982, 0x8983, 0x89A0, 0x89A1, 0x89A2, 0x89A3)


def test_every_call_that_is_not_named_is_refused() -> None:
    assert json.loads(profile())["defaultAction"] == "SCMP_ACT_ERRNO"
    assert not any(allows(name, *[0] * 6) for name in ("mount", "unshare", "ptrace", "keyctl", "clone3", "sethostname"))
    assert all(allows(name, *[0] * 6) for name in ("read", "execve", "futex", "mmap", "exit_group"))


def test_calls_that_programs_probe_for_are_unknown() -> None:
    unknown = [name for rule in RULES if rule.get("errnoRet") == errno.ENOSYS for name in rule["names"]]
    assert {"clone3", "io_uring_setup"} <= {*unknown}
    assert not any(allows(name, *[0] * 6) for name in unknown)


def test_no_call_is_named_in_two_ways() -> None:
    """The rules of a call all have arguments, or it has only one rule: libseccomp takes no others."""
    kinds = [(name, bool(rule.get("args"))) for rule in RULES for name in rule["names"]]
    assert len({*kinds}) == len({name for name, _ in kinds})
    alone = [name for name, has_arguments in kinds if not has_arguments]
    assert len(alone) == len({*alone})


@pytest.mark.parametrize("machine", ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"])
def test_both_architectures_are_covered(machine: str) -> None:
    assert machine in json.loads(profile())["architectures"]


@given(WORDS)
def test_clone_makes_no_namespace(flags: int) -> None:
    assert allows("clone", flags) == (not flags & NEW_NAMESPACES)
    for bit in range(64):
        assert allows("clone", 1 << bit) == (not 1 << bit & NEW_NAMESPACES), bit


@pytest.mark.parametrize("request_", REFUSED_REQUESTS)
@given(high=st.integers(0, 2**32 - 1))
def test_requests_to_terminals_are_refused_whatever_the_high_half_is(request_: int, high: int) -> None:
    for near in (request_ - 1, request_, request_ + 1):
        assert allows("ioctl", 0, high << 32 | near) == (near not in REFUSED_REQUESTS)


@given(st.one_of(st.just(6), WORDS), st.one_of(st.just(31), WORDS))
@example(6, 31)
@example(1 << 32 | 6, 1 << 63 | 31)
@example(5, 31)
@example(7, 31)
@example(6, 30)
@example(6, 32)
def test_a_connection_cannot_be_handed_to_a_kernel_module(level: int, option: int) -> None:
    refused = level & 0xFFFFFFFF == 6 and option & 0xFFFFFFFF == 31
    assert allows("setsockopt", 0, level, option) == (not refused)


@pytest.mark.parametrize("family", [0, 1, 2, 3, 9, 10, 11, 16, 17, 38, 40, 45])
def test_only_local_tcp_and_udp_sockets_are_allowed(family: int) -> None:
    for kind, protocol in product((*range(12), 1 << 11 | 1, 1 << 19 | 2), (0, 1, 2, 5, 6, 7, 16, 17, 18, 132, 262)):
        internet = family in (2, 10) and kind & 0xF in (1, 2) and protocol in (0, 6, 17)
        assert allows("socket", family, kind, protocol) == (family == 1 or internet), (kind, protocol)
        assert allows("socketpair", family, kind, protocol) == (family == 1 or internet), (kind, protocol)


@pytest.mark.parametrize("permissions", [0, 0o7777])
def test_devices_cannot_be_made(permissions: int) -> None:
    for kind in range(0, 1 << 17, 0o10000):
        allowed = kind & 0o170000 not in (0o020000, 0o060000)
        assert allows("mknod", 0, kind | permissions) == allowed, oct(kind)
        assert allows("mknodat", 0, 0, kind | permissions) == allowed, oct(kind)


@given(WORDS)
@example(0)
@example(1)
@example(0xFFFFFFFE)
@example(0xFFFFFFFF)
@example(1 << 32)
def test_a_process_can_change_only_its_own_limits_and_emulate_no_other_system(value: int) -> None:
    assert allows("prlimit64", value) == (not value & 0xFFFFFFFF)
    assert allows("personality", value) == (value & 0xFFFFFFFF in (0, 0xFFFFFFFF))


@given(WORDS)
@example(0)
@example(1)
@example(2)
@example(1 << 32 | 1)
def test_the_priority_of_the_first_process_cannot_be_changed(process: int) -> None:
    another = process & 0xFFFFFFFF != 1
    for which in range(4):
        assert allows("setpriority", which, process) == (which in (0, 1) and another)
    assert allows("sched_setattr", process) == allows("sched_setscheduler", process) == another
