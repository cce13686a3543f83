"""Where containers and pods differ from bubblewrap. A row that no longer holds fails the run."""

from collections.abc import Iterable

import pytest

from llm_sandbox_mcp.errors import SandboxError

CONTAINERS = ("docker", "podman")
PODS = ("kubernetes",)

_AGENT = "code has the user of the agent, so it can end it; `test_agent.py` says what comes of that"
_FEEDER = "code has the user of what feeds its runner, so it can end that, and with it its own run; the pod stays"
_PID_1 = "the first process of a container has the user of the code; `test_agent.py` says what comes of that"
_TERMINALS = "a container's terminals are mounted by the engine, which takes no number"
_BUFFERS = "a node with control groups of version 1 does not limit them; with version 2 they are memory"
_USERS = "an engine without user namespaces maps no users"

_SIZES = "before 1.22 no volume in memory has a size; memory bounds them all"
_NETWORK = "the tests' cluster gives pods a network; where pods have one, the server refuses to run: `tests/cluster`"

UNCOUNTED = {"kubernetes": "a node limits processes, and counts no refusals"}
"""Backends on which no result says that the limit on processes was reached, and why."""

FILES_BOUNDED = ("docker",)
"""Engines that refuse files beyond limits.files; elsewhere they are counted after a run, and too many end the sandbox."""

FILES_UNSEEN = PODS
"""Backends that count them after a run that failed only: after each it would cost a process."""

OUTCOMES: dict[str, tuple[tuple[str, ...], str]] = {
    "test_a_killed_runner_is_an_error_that_says_so[{}-everything, the runner last]": (CONTAINERS, _AGENT),
    "test_a_killed_runner_is_an_error_that_says_so[{}-from a child]": (CONTAINERS, _AGENT),
    "test_pid_1_survives_every_signal[{}]": (CONTAINERS, _AGENT),
    "test_pid_1_survives_every_signal[kubernetes]": (PODS, _FEEDER),
    "test_pid_1_can_be_neither_read_nor_written_nor_traced[{}]": (CONTAINERS + PODS, _PID_1),
    "test_no_other_user_of_the_machine_is_mapped[{}]": (CONTAINERS + PODS, _USERS),
    "test_a_file_that_does_not_fit_is_refused_with_the_reason[{}-16777216]": (PODS, _SIZES),
    "test_a_disk_filler_meets_the_limit": (PODS, _SIZES),
    "test_a_limit_has_its_status_in_every_language[{}-disk_limit": (PODS, _SIZES),
    "test_each_limit_holds_after_that[{}-disk_limit": (PODS, _SIZES),
    "test_the_limit_keeps_a_dump_from_a_program_of_the_host_too": (
        PODS,
        "a shell counts in blocks, so that no limit of one byte can be set; it is 0, and no file is written",
    ),
    **{
        f"test_what_one_sandbox_takes_the_others_still_have[{backend}-pseudo-terminals]": ((backend,), _TERMINALS)
        for backend in ("docker", "kubernetes")
    },
    **{f"test_buffers_of_sockets_count_as_memory[kubernetes-{kind}]": (PODS, _BUFFERS) for kind in ("tcp", "udp")},
    "test_the_only_interface_is_the_own_loopback": (PODS, _NETWORK),
    "test_no_address_outside_can_be_reached": (PODS, _NETWORK),
}
"""Tests that must fail on some backends, by how their names begin, {} being the backend."""

_IMAGE = "an image is a whole system, with empty folders and files that only root can read"
_PROC = "the engine decides what of /proc and /sys is masked"
_OWN_HANDLERS = "each container has a copy of the handlers, which is the code's, and message queues of its own"

FINDINGS: dict[str, tuple[str, set[str]]] = {
    "test_engine_sockets_and_the_users_places_are_absent": (
        _IMAGE,
        {"/run", "/var", "/root", "/etc/shadow", "/mnt", "/media", "/srv", "/boot", "/sys", "/proc/1/root/run"},
    ),
    "test_engine_sockets_and_the_users_places_are_absent[docker]": ("it marks its containers", {"/.dockerenv"}),
    "test_no_setting_of_the_kernel_can_be_written": (
        "its own audit id, which tells nobody anything, the first process's badness, which bounds only itself, and files by "
        "which the kernel wakes who waits for memory",
        {"self/loginuid", "1/oom_score_adj", *(f"/proc/pressure/{name}" for name in ("cpu", "io", "memory", "irq"))},
    ),
    "test_sysfs_and_control_groups_are_not_there": (
        _PROC,
        {"/sys", "/sys/kernel", "/sys/fs/cgroup", "/proc/sys/../../sys"},
    ),
    "test_nothing_in_proc_tells_of_the_host": (
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
            *(f"{what} /opt/handlers/python/runner.py" for what in ("content of", "end of", "times of")),
            "/opt/handlers/python/runner.py itself",
            "file in /dev/mqueue",
        },
    ),
    "test_only_the_own_folders_are_writable_mounts": (
        "what belongs to root is not written by others, and nothing can gain privileges: `no_new_privs`",
        {"/opt/handlers", "/dev", "/sys/fs/cgroup", "setuid programs elsewhere"},
    ),
    "test_only_the_own_folders_are_writable_mounts[kubernetes]": (
        "a pod's volumes have no such options; nothing can gain privileges, nor make a device",
        {
            *(f"{place} without {option}" for place in ("/sandbox", "/home", "/tmp") for option in ("nosuid", "nodev")),
            *("/etc/hosts", "/root/end"),  # which are root's
        },
    ),
}
"""What else a test finds on containers and pods, or on the one named, and why: all of it."""

BY_VERSION = {
    *("cmdline", "config.gz", "interrupts", "kallsyms", "key-users"),
    *("/sys/fs/cgroup", "setuid programs elsewhere", "/.dockerenv"),
    *("driver", "modules", "/proc/pressure/irq"),
}
"""Of that, what engines mask, mount or make in one version and not in another, and what the last line names, which not
every kernel has: it may be found."""

SOME_FOUND = PODS
"""Backends on which some of it is found; which, depends on what the nodes of a cluster run."""


def mark(items: Iterable[pytest.Item]) -> None:
    """Has the tests of the first table fail; what their checks afterwards find is an error all the same."""
    for item in items:
        for name, (backends, reason) in OUTCOMES.items():
            for backend in backends:
                if f"[{backend}" in item.name and item.name.startswith(name.format(backend)):
                    # The last is of `pytest.raises`, where nothing was raised.
                    raises = (AssertionError, SandboxError, pytest.fail.Exception)
                    item.add_marker(pytest.mark.xfail(reason=reason, raises=raises))


def findings(backend: str, test: str) -> set[str]:
    """What a test finds on a backend."""
    rows = (test, f"{test}[{backend}]") if backend in CONTAINERS + PODS else ()
    return {found for row in rows if row in FINDINGS for found in FINDINGS[row][1]}
