"""Where containers and pods differ from bubblewrap. A row that no longer applies fails the run."""

from collections.abc import Iterable

import pytest

from llm_sandbox_mcp.base.errors import SandboxError

CONTAINERS = ("docker", "podman")
PODS = ("kubernetes",)

_AGENT = "code runs as the agent's user, so it can kill the agent; `test_agent.py` shows the consequences"
_FEEDER = (
    "code runs as the user of the process that feeds its runner, so it can kill that and its own run; the pod stays"
)
_PID_1 = "the first process of a container runs as the code's user; `test_agent.py` shows the consequences"
_TERMINALS = "the engine mounts a container's terminals, and has no setting for their number"
_BUFFERS = "a node with control groups of version 1 does not limit socket buffers; with version 2 they count as memory"
_USERS = "an engine without user namespaces maps no users"

_SIZES = "before Kubernetes 1.22 volumes in memory have no size; the memory limit bounds them all"
_NETWORK = (
    "the tests' cluster gives pods a network; `tests/cluster` shows that the server refuses to run where pods have one"
)

UNCOUNTED = {"kubernetes": "a node limits processes, but does not count refusals"}
"""Backends whose results never report that the limit on processes was reached, and why."""

FILES_BOUNDED = ("docker",)
"""Engines that refuse files beyond limits.files; elsewhere files are counted after a run, and too many end the
sandbox."""

FILES_UNSEEN = PODS
"""Backends that count files only after a run that failed: counting after every run would cost a process."""

OUTCOMES: dict[str, tuple[tuple[str, ...], str]] = {
    "test_a_killed_runner_is_an_error_that_says_so[{}-everything, the runner last]": (CONTAINERS, _AGENT),
    "test_a_killed_runner_is_an_error_that_says_so[{}-from a child]": (CONTAINERS, _AGENT),
    "test_pid_1_survives_every_signal[{}]": (CONTAINERS, _AGENT),
    "test_pid_1_survives_every_signal[kubernetes]": (PODS, _FEEDER),
    "test_pid_1_cannot_be_read_written_or_traced[{}]": (CONTAINERS + PODS, _PID_1),
    "test_no_other_user_of_the_machine_is_mapped[{}]": (CONTAINERS + PODS, _USERS),
    "test_a_file_that_does_not_fit_is_refused_with_the_reason[{}-16777216]": (PODS, _SIZES),
    "test_a_disk_filler_meets_the_limit": (PODS, _SIZES),
    "test_a_limit_has_its_status_in_every_language[{}-disk_limit": (PODS, _SIZES),
    "test_each_limit_still_applies_after_that[{}-disk_limit": (PODS, _SIZES),
    "test_the_limit_also_keeps_a_dump_from_a_program_of_the_host": (
        PODS,
        "a shell sets this limit in blocks, so it cannot be one byte; it is 0, and no file is written",
    ),
    **{
        f"test_others_still_have_what_one_sandbox_uses_up[{backend}-pseudo-terminals]": ((backend,), _TERMINALS)
        for backend in ("docker", "kubernetes")
    },
    **{f"test_buffers_of_sockets_count_as_memory[kubernetes-{kind}]": (PODS, _BUFFERS) for kind in ("tcp", "udp")},
    "test_the_only_interface_is_its_own_loopback": (PODS, _NETWORK),
    "test_no_address_outside_can_be_reached": (PODS, _NETWORK),
}
"""Tests that must fail on some backends, by the start of their names; {} is the backend."""

_IMAGE = "an image is a whole system, with empty folders and files that only root can read"
_PROC = "the engine decides which parts of /proc and /sys are masked"
_OWN_HANDLERS = "each container has its own copy of the handlers, which code may write, and its own message queues"

FINDINGS: dict[str, tuple[str, set[str]]] = {
    "test_engine_sockets_and_the_users_folders_are_absent": (
        _IMAGE,
        {"/run", "/var", "/root", "/etc/shadow", "/media", "/srv", "/boot", "/sys", "/proc/1/root/run"},
    ),
    "test_engine_sockets_and_the_users_folders_are_absent[docker]": ("Docker marks its containers", {"/.dockerenv"}),
    "test_no_setting_of_the_kernel_can_be_written": (
        "its own audit id, which reveals nothing, the OOM score of the first process, which affects only that process, "
        "and files through which the kernel wakes processes that wait for memory",
        {"self/loginuid", "1/oom_score_adj", *(f"/proc/pressure/{name}" for name in ("cpu", "io", "memory", "irq"))},
    ),
    "test_sysfs_and_control_groups_are_not_there": (
        _PROC,
        {"/sys", "/sys/kernel", "/sys/fs/cgroup", "/proc/sys/../../sys"},
    ),
    "test_nothing_in_proc_reveals_the_host": (
        _PROC,
        {
            *(
                "cmdline",
                "config.gz",
                "interrupts",
                "kallsyms",
                "key-users",
                "iomem",
                "ioports",
                "locks",
                "modules",
                "softirqs",
            ),
            *("bus", "driver", "fs", "irq", "pressure"),
        },
    ),
    "test_no_folder_of_the_system_can_be_written": (
        _OWN_HANDLERS,
        {
            *(
                f"{what} {place}"
                for what in ("file in", "folder in", "link in", "FIFO in", "mode of")
                for place in ("/opt/handlers", "/opt/handlers/python")
            ),
            *(
                f"{what} /opt/handlers/python/importlib_bootstrap/runner.py"
                for what in ("content of", "end of", "times of")
            ),
            "/opt/handlers/python/importlib_bootstrap/runner.py itself",
            "file in /dev/mqueue",
        },
    ),
    **{
        f"test_no_folder_of_the_system_can_be_written[{backend}]": ("code owns the folder of a link", {"mode of /mnt"})
        for backend in CONTAINERS
    },
    "test_no_folder_of_the_system_can_be_written[kubernetes]": (
        "the volume for a link has 4 KiB, and no owner to whom the agent could leave it",
        {f"{what} in /mnt" for what in ("file", "folder", "link", "FIFO")},
    ),
    "test_only_its_own_folders_are_writable_mounts": (
        "root's files cannot be written by other users, and nothing can gain privileges: `no_new_privs`",
        {"/opt/handlers", "/mnt", "/dev", "/sys/fs/cgroup", "setuid programs elsewhere"},
    ),
    "test_only_its_own_folders_are_writable_mounts[kubernetes]": (
        "a pod's volumes have no such options; nothing can gain privileges or make a device",
        {
            *(f"{place} without {option}" for place in ("/sandbox", "/home", "/tmp") for option in ("nosuid", "nodev")),
            *("/etc/hosts", "/root/end"),  # owned by root
        },
    ),
    "test_every_call_is_allowed_or_refused_as_in_the_table[kubernetes]": (
        "the cluster's own profile refuses more calls",
        {
            *(f"{name}: EPERM" for name in ("get_mempolicy", "mbind", "process_madvise", "set_mempolicy")),
            "set_mempolicy_home_node: ENOSYS",
        },
    ),
}
"""What a test finds in addition on containers and pods, or on the named backend, and why. Each set is complete."""

BY_VERSION = {
    *("cmdline", "config.gz", "interrupts", "kallsyms", "key-users"),
    *("/sys/fs/cgroup", "setuid programs elsewhere", "/.dockerenv"),
    *("driver", "modules", "/proc/pressure/irq"),
}
"""Findings that may be missing: engines mask, mount or make them in some versions only, and not every kernel has those
of the last line."""

SOME_FOUND = PODS
"""Backends on which only some of the findings occur; which ones depends on the software of the cluster's nodes."""


def mark(items: Iterable[pytest.Item]) -> None:
    """Marks the tests of `OUTCOMES` as expected to fail; a failure of the checks after them is still an error."""
    for item in items:
        for name, (backends, reason) in OUTCOMES.items():
            for backend in backends:
                if f"[{backend}" in item.name and item.name.startswith(name.format(backend)):
                    # `pytest.raises` raises the last one if nothing was raised.
                    raises = (AssertionError, SandboxError, pytest.fail.Exception)
                    item.add_marker(pytest.mark.xfail(reason=reason, raises=raises))


def findings(backend: str, test: str) -> set[str]:
    """What a test is expected to find on a backend."""
    rows = (test, f"{test}[{backend}]") if backend in CONTAINERS + PODS else ()
    return {found for row in rows if row in FINDINGS for found in FINDINGS[row][1]}
