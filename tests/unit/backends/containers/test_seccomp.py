"""The seccomp profile of containers: system calls that embedded sandboxes refuse are refused there too."""

import errno
import json

import pytest
from hypothesis import given
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


@given(st.one_of(st.sampled_from(REFUSED_REQUESTS), st.integers(0, 2**32 - 1)), st.integers(0, 2**32 - 1))
def test_requests_to_terminals_are_refused_whatever_the_high_half_is(request: int, high: int) -> None:
    assert allows("ioctl", 0, high << 32 | request) == (request not in REFUSED_REQUESTS)


@given(st.one_of(st.just(6), WORDS), st.one_of(st.just(31), WORDS))
def test_a_connection_cannot_be_handed_to_a_kernel_module(level: int, option: int) -> None:
    refused = level & 0xFFFFFFFF == 6 and option & 0xFFFFFFFF == 31
    assert allows("setsockopt", 0, level, option) == (not refused)


@given(st.integers(0, 45), st.integers(0, 12), st.integers(0, 300))
def test_only_local_tcp_and_udp_sockets_are_allowed(family: int, kind: int, protocol: int) -> None:
    internet = family in (2, 10) and kind in (1, 2) and protocol in (0, 6, 17)
    assert allows("socket", family, kind, protocol) == allows("socketpair", family, kind, protocol)
    assert allows("socket", family, kind, protocol) == (family == 1 or internet)


@given(st.integers(0, 0o177777))
def test_devices_cannot_be_made(mode: int) -> None:
    allowed = mode & 0o170000 not in (0o020000, 0o060000)
    assert allows("mknod", 0, mode) == allows("mknodat", 0, 0, mode) == allowed


@given(WORDS)
def test_a_process_can_change_only_its_own_limits_and_emulate_no_other_system(value: int) -> None:
    assert allows("prlimit64", value) == (not value & 0xFFFFFFFF)
    assert allows("personality", value) == (value & 0xFFFFFFFF in (0, 0xFFFFFFFF))


@given(st.integers(0, 3), st.one_of(st.sampled_from((0, 1, 2, 1 << 32 | 1)), WORDS))
def test_the_priority_of_the_first_process_cannot_be_changed(which: int, process: int) -> None:
    another = process & 0xFFFFFFFF != 1
    assert allows("setpriority", which, process) == (which in (0, 1) and another)
    assert allows("sched_setattr", process) == allows("sched_setscheduler", process) == another
