"""The system call filter as a program, run by an interpreter in the test."""

import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.backends import bpf
from llm_sandbox_mcp.backends.calls import CALLS, MACHINES

from .verdicts import ALLOW, ARCHITECTURE, KILL, instructions, judge

REFUSED = [name for name, call in CALLS.items() if isinstance(call.verdict, int)]
UNKNOWN = {
    *("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register"),
    *("statmount", "listmount", "io_setup", "modify_ldt"),
}

machines = st.sampled_from(MACHINES)
words = st.integers(0, 2**32 - 1)
high_halves = st.integers(0, 2**32 - 1).map(lambda half: half << 32)


def test_another_architecture_is_refused_with_the_next_step() -> None:
    with pytest.raises(ValueError, match=r"'riscv64', only for"):
        bpf.program("riscv64")


@pytest.mark.parametrize("machine", MACHINES)
def test_every_jump_lands_inside_and_the_last_instruction_returns(machine: str) -> None:
    program = instructions(machine)
    assert len(program) < 4096
    assert program[-1][0] == 0x06
    for position, (operation, then, otherwise, _) in enumerate(program):
        if operation in (0x15, 0x35):
            assert position + 1 + max(then, otherwise) < len(program)


@given(machines, words, words)
def test_a_foreign_architecture_is_killed(machine: str, architecture: int, call: int) -> None:
    if architecture != ARCHITECTURE[machine]:
        assert judge(machine, call, architecture=architecture) == KILL


@given(machines, st.sampled_from(REFUSED), st.lists(words, max_size=6))
def test_a_refused_call_gives_its_error_whatever_its_arguments(machine: str, name: str, arguments: list[int]) -> None:
    if machine in CALLS[name].numbers:
        assert judge(machine, name, *arguments) == ("ENOSYS" if name in UNKNOWN else "EPERM")


@pytest.mark.parametrize("machine", MACHINES)
def test_a_call_without_a_rule_is_allowed_whatever_its_arguments(machine: str) -> None:
    for name in ("read", "execve", "futex", "mmap", "exit_group", "rt_sigreturn"):
        assert {judge(machine, name, *[word] * 6) for word in (0, 1, 2**64 - 1)} == {ALLOW}


@given(machines, st.one_of(st.integers(0, 600), words))
def test_a_call_that_is_not_in_the_table_is_unknown(machine: str, number: int) -> None:
    """Such as newer calls, and the x32 table."""
    if number not in {call.numbers.get(machine) for call in CALLS.values()}:
        assert judge(machine, number) == "ENOSYS"


@given(machines, st.sampled_from([0x20000, *[1 << bit for bit in range(25, 31)]]), words, high_halves)
def test_clone_with_any_new_namespace_is_denied(machine: str, flag: int, others: int, high: int) -> None:
    assert judge(machine, "clone", high | others | flag) == "EPERM"


@given(machines, words, high_halves)
def test_clone_without_new_namespaces_is_allowed(machine: str, flags: int, high: int) -> None:
    assert judge(machine, "clone", high | flags & ~0x7E020000) == ALLOW


@given(machines, st.sampled_from(["socket", "socketpair"]), words, words, words, high_halves)
def test_families_other_than_unix_and_internet_do_not_exist(
    machine: str, call: str, family: int, kind: int, protocol: int, high: int
) -> None:
    if family not in (1, 2, 10):
        assert judge(machine, call, high | family, kind, protocol) == "EAFNOSUPPORT"


@given(machines, st.sampled_from([2, 10]), words, words, high_halves)
def test_internet_sockets_are_tcp_or_udp_and_never_raw(
    machine: str, family: int, kind: int, protocol: int, high: int
) -> None:
    expected = ALLOW if kind & 0xF in (1, 2) else "EPERM"
    if protocol not in (0, 6, 17):
        expected = "EPROTONOSUPPORT"
    assert judge(machine, "socket", family, high | kind, high | protocol) == expected


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("family", [1, 2, 10])
@pytest.mark.parametrize("kind", [1, 2])
@pytest.mark.parametrize("flags", [0, 0o4000, 0o2000000])
def test_stream_and_datagram_sockets_are_allowed(machine: str, family: int, kind: int, flags: int) -> None:
    assert judge(machine, "socket", family, kind | flags, 0) == ALLOW


@given(
    machines,
    st.sampled_from([0x5412, 0x541C, 0x5423, 0x8940, 0x8941, 0x8982, 0x8983, *range(0x89A0, 0x89A4)]),
    high_halves,
)
def test_high_bits_do_not_hide_a_terminal_injection_or_a_module_load(machine: str, request_: int, high: int) -> None:
    assert judge(machine, "ioctl", 0, high | request_) == "EPERM"


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    "request_", [0x5401, 0x5413, 0x541B, 0x5421, 0x8912, 0x8927, 0x8933, 0x893F, 0x8942, 0x8981, 0x8984, 0x89A4]
)
def test_ordinary_requests_to_terminals_and_sockets_are_allowed(machine: str, request_: int) -> None:
    assert judge(machine, "ioctl", 1, request_) == ALLOW


@given(machines, st.integers(0, 0o7777), high_halves)
def test_only_devices_cannot_be_made_by_mknod(machine: str, permissions: int, high: int) -> None:
    makers: list[tuple[str, list[int]]] = [("mknodat", [0, 0])]
    if machine == "x86_64":
        makers.append(("mknod", [0]))
    for name, before in makers:
        for kind in (stat.S_IFCHR, stat.S_IFBLK):
            assert judge(machine, name, *before, high | kind | permissions) == "EPERM"
        for kind in (0, stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK):
            assert judge(machine, name, *before, high | kind | permissions) == ALLOW


@given(machines, words)
def test_personality_can_be_read_but_not_changed(machine: str, persona: int) -> None:
    assert judge(machine, "personality", persona) == (ALLOW if persona in (0, 0xFFFFFFFF) else "EPERM")


@given(machines, words)
def test_limits_can_be_set_only_for_the_caller(machine: str, process: int) -> None:
    assert judge(machine, "prlimit64", process) == ("EPERM" if process else ALLOW)
    assert judge(machine, "prlimit64", 0) == ALLOW


@given(machines, st.one_of(st.integers(0, 3), words), st.one_of(st.integers(0, 2), words))
def test_the_priority_of_every_process_except_the_first_can_be_changed(machine: str, which: int, process: int) -> None:
    expected = ALLOW if which in (0, 1) and process != 1 else "EPERM"
    assert judge(machine, "setpriority", which, process) == expected
    for call in ("sched_setattr", "sched_setscheduler"):
        assert judge(machine, call, process) == ("EPERM" if process == 1 else ALLOW)


@given(machines, words, words)
def test_setsockopt_is_denied_only_for_loading_a_protocol_above_tcp(machine: str, level: int, name: int) -> None:
    expected = "EPERM" if (level, name) == (6, 31) else ALLOW
    assert judge(machine, "setsockopt", 3, level, name) == expected
    assert judge(machine, "setsockopt", 3, 6, 31) == "EPERM"
