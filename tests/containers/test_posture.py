"""A running container as its host sees it: what the engine reports, and what the kernel shows of each of its processes.

The table of layers promises these; each of them is checked here, or in the file that `ELSEWHERE` names.
"""

import os
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import docker
import pytest

from llm_sandbox_mcp.backends.containers.backend import LABEL
from llm_sandbox_mcp.backends.containers.settings import Mount
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.engines import MIB, small_profile
from tests.promises import TABLE, listed, showing

pytestmark = pytest.mark.anyio

SECRET = "posture-secret-7f3a"
DAY = 86_400
USER = "1234:2345"
"""Not the user that the images name."""
LIMITS = {"memory": 96 * MIB, "cpus": 0.75, "pids": 48, "disk": 24 * MIB}
OWN_PROCESSES = 4
"""The init, the agent, and what the agent starts, in addition to those that the policy allows."""
IN_MEMORY = ("/sandbox", "/home", "/tmp", "/opt/handlers", "/mnt")
KERNELS = {"/proc", "/dev", "/dev/pts", "/dev/mqueue", "/dev/shm", "/sys/fs/cgroup", "/proc/keys", "/proc/timer_list"}
"""Mounts of the kernel without anyone's files; they are writable only as far as their owner, the host's root, allows
it."""
ENGINES_OWN = {"PATH", "LANG", "HOME", "HOSTNAME", "TERM", "container"}
"""Variables that an image or an engine sets."""


@dataclass(frozen=True)
class Seen:
    """A running container, as the checks see it."""

    server: str
    inspected: Mapping[str, Any]
    processes: tuple[int, ...]

    @property
    def host(self) -> Mapping[str, Any]:
        settings: Mapping[str, Any] = self.inspected["HostConfig"]
        return settings

    def status(self, *keys: str) -> set[tuple[str, ...]]:
        """The values of these keys in `/proc/PID/status` of all processes; one value if all are equal."""
        found = set()
        for process in self.processes:
            lines = (line.partition(":") for line in self.read(process, "status").splitlines())
            fields = {key: " ".join(value.split()) for key, _, value in lines}
            found.add(tuple(fields[key] for key in keys))
        return found

    def read(self, process: int, name: str) -> str:
        return Path(f"/proc/{process}/{name}").read_text()

    def environment(self) -> set[str]:
        return {entry for process in self.processes for entry in self.read(process, "environ").split("\0") if entry}

    def mounts(self) -> Mapping[str, tuple[str, set[str], str, str]]:
        """For each mount point in the container: the root in its source, the mount's options, the kind of file system,
        and the file system's options."""
        found = {}
        for line in self.read(self.processes[0], "mountinfo").splitlines():
            here, _, there = line.partition(" - ")
            _, _, _, root, place, options, *_ = here.split()
            kind, _, own = there.split(maxsplit=2)
            found[place] = (root, set(options.split(",")), kind, own)
        return found

    def limit(self, controller: str, old: str, new: str) -> list[int]:
        """A limit of the control group, as numbers, in whichever version of control groups the host has."""
        groups = dict(line.split(":", 2)[1:] for line in self.read(self.processes[0], "cgroup").splitlines())
        if controller in groups:
            file = Path(f"/sys/fs/cgroup/{controller}{groups[controller]}/{old}")
        else:
            file = Path(f"/sys/fs/cgroup{groups['']}/{new}")
        return [int(word) for word in file.read_text().split() if word.isdigit()]

    def process_limit(self, name: str) -> set[tuple[str, str]]:
        """Soft and hard limit of every process."""
        found = set()
        for process in self.processes:
            (line,) = [line for line in self.read(process, "limits").splitlines() if line.startswith(name)]
            soft, hard, *_ = line.removeprefix(name).split()
            found.add((soft, hard))
        return found


def writable(seen: Seen) -> set[str]:
    return {place for place, (_, options, _, _) in seen.mounts().items() if "rw" in options} - KERNELS


def sizes(seen: Seen) -> set[int]:
    own = [seen.mounts()[place][3] for place in (*IN_MEMORY, "/dev/shm")]
    return {int(word[5:-1]) << 10 for text in own for word in text.split(",") if word.startswith("size=")}


def shared_namespaces(seen: Seen) -> set[str]:
    names = ("mnt", "pid", "net", "ipc", "uts", "cgroup")
    ours = {os.readlink(f"/proc/self/ns/{name}") for name in names}
    return {os.readlink(f"/proc/{process}/ns/{name}") for process in seen.processes for name in names} & ours


def interfaces(seen: Seen) -> set[str]:
    lines = [line for process in seen.processes for line in seen.read(process, "net/dev").splitlines()[2:]]
    return {line.partition(":")[0].strip() for line in lines}


def sources_of_the_machine(seen: Seen) -> set[str]:
    """The mount points with files of the host: there must be no engine's socket, and only folders that the profile
    names."""
    plumbing = ("/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/etc/passwd", "/etc/group", "/run/.containerenv")
    return {
        place
        for place, (root, _, kind, _) in seen.mounts().items()
        if kind not in ("proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue", "overlay")
        # Part of a file system in memory belongs to the host; masked files are the container's own /dev/null.
        and not (kind == "tmpfs" and root in ("/", "/null"))
        and place not in (*plumbing, "/usr/sbin/docker-init", "/sbin/docker-init", "/run/podman-init")
    }


def sockets(seen: Seen) -> list[str]:
    roots = [root for root, *_ in seen.mounts().values()]
    return [root for root in roots if "docker.sock" in root or "podman.sock" in root]


def code_descriptors(seen: Seen) -> set[str]:
    """Targets of the descriptors of the interpreter and its child: three pipes each, and what they opened
    themselves."""
    found = set()
    for process in seen.processes:
        if seen.read(process, "comm").strip() in ("python3", "sleep"):
            targets = {entry.name: os.readlink(entry) for entry in Path(f"/proc/{process}/fd").iterdir()}
            assert {targets[name].partition(":")[0] for name in "12"} == {"pipe"}
            found |= {re.sub(r":\[\d+\]$|:\[eventpoll\]$", "", target) for target in targets.values()}
    return found


def labels(seen: Seen) -> tuple[str, bool]:
    found = seen.inspected["Config"]["Labels"]
    return found[LABEL], 0 < int(found["llm-sandbox-mcp.expires"]) - time.time() <= DAY


POSTURE: Mapping[str, tuple[Callable[[Seen], object], object]] = {
    "user and group of every process": (
        lambda seen: seen.status("Uid", "Gid"),
        {("1234 1234 1234 1234", "2345 2345 2345 2345")},
    ),
    "supplementary groups": (lambda seen: seen.status("Groups") - {("",)}, {("2345",)}),
    "capabilities": (
        lambda seen: seen.status("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"),
        {("0" * 16,) * 5},
    ),
    "no new privileges, and filtered calls": (lambda seen: seen.status("NoNewPrivs", "Seccomp"), {("1", "2")}),
    "privileged, devices": (lambda seen: (seen.host["Privileged"], seen.host["Devices"] or []), (False, [])),
    "namespaces of the machine": (shared_namespaces, set()),
    "network": (lambda seen: (interfaces(seen), seen.host["NetworkMode"]), ({"lo"}, "none")),
    "the root": (lambda seen: "ro" in seen.mounts()["/"][1], True),
    "writable places": (writable, {*IN_MEMORY, "/stated/writable"}),
    "folders in memory": (lambda seen: {seen.mounts()[place][2] for place in IN_MEMORY}, {"tmpfs"}),
    "setuid programs and devices there": (
        lambda seen: all({"nosuid", "nodev"} <= seen.mounts()[place][1] for place in IN_MEMORY),
        True,
    ),
    "size of folders in memory": (sizes, {LIMITS["disk"], 16 * MIB, 4096}),
    "folders of the machine": (sources_of_the_machine, {"/stated/writable", "/stated/read-only"}),
    "sockets of the engine": (sockets, []),
    "memory": (
        lambda seen: seen.limit("memory", "memory.limit_in_bytes", "memory.max"),
        [LIMITS["memory"]],
    ),
    "memory with swap": (lambda seen: seen.host["MemorySwap"], LIMITS["memory"]),
    "processes": (lambda seen: seen.limit("pids", "pids.max", "pids.max"), [48 + OWN_PROCESSES]),
    "processors": (lambda seen: seen.limit("cpu", "cpu.cfs_quota_us", "cpu.max")[0], 75_000),
    "file size": (lambda seen: seen.process_limit("Max file size"), {(str(24 * MIB),) * 2}),
    "core files": (lambda seen: seen.process_limit("Max core file size"), {("1", "1")}),
    "an init": (
        lambda seen: (
            seen.host.get("Init"),
            seen.read(seen.processes[0], "comm") in ("docker-init\n", "podman-init\n"),
        ),
        (True, True),
    ),
    "restart, removal": (
        lambda seen: (seen.host["RestartPolicy"]["Name"], seen.host["AutoRemove"]),
        ("no", True),
    ),
    "a log on disk": (lambda seen: seen.host["LogConfig"]["Type"], "none"),
    "descriptors of code": (code_descriptors, {"pipe", "/dev/null"}),
    "variables of the container": (
        lambda seen: {entry.partition("=")[0] for entry in seen.inspected["Config"]["Env"]} - ENGINES_OWN,
        set(),
    ),
    "variables of the server": (lambda seen: [entry for entry in seen.environment() if SECRET in entry], []),
}
"""For each check how its value is found, and the expected value."""


@pytest.fixture
async def seen(
    engine: str, folder: Path, client: docker.DockerClient, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Seen]:
    """The container of a session whose interpreter has started."""
    monkeypatch.setenv("PIP_SECRET", SECRET)
    for name in ("writable", "read-only"):
        (folder / name).mkdir()
    mounts = [
        Mount(source=str(folder / name), target=f"/stated/{name}", writable=name == "writable")
        for name in ("writable", "read-only")
    ]
    profile = small_profile(engine, folder, limits=LIMITS, containers={"mounts": tuple(mounts), "user": USER})
    with anyio.fail_after(60):
        async with open_service(profile, environ=dict(os.environ)) as service:
            await execute(service, "import subprocess\nchild = subprocess.Popen(['sleep', '1000'])")
            (server,) = os.listdir(folder / "runtime")
            (container,) = client.api.containers(filters={"label": f"{LABEL}={server}"})
            inspected = client.api.inspect_container(container["Id"])
            processes = _processes(inspected["State"]["Pid"])
            names = {Path(f"/proc/{process}/comm").read_text().strip() for process in processes}
            assert {"sh", "python3", "sleep"} <= names, names
            yield Seen(server, inspected, processes)


def _processes(first: int) -> tuple[int, ...]:
    """All processes of the container, the first process first."""
    space = os.readlink(f"/proc/{first}/ns/pid")
    found = [first]
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and int(name) != first and os.readlink(f"/proc/{name}/ns/pid") == space:
                found.append(int(name))
        except OSError:  # it ended meanwhile
            continue
    return tuple(found)


COLUMN = "Docker, Podman"
LAYERS = {
    "namespaces": ("all but user", ("namespaces of the machine",)),
    "capabilities": ("none", ("capabilities", "privileged, devices")),
    "gaining privileges": ("never", ("no new privileges, and filtered calls", "setuid programs and devices there")),
    "system calls": ("ours", ("no new privileges, and filtered calls",)),
    "user of the machine": (
        "one of its own for each container",
        ("user and group of every process", "supplementary groups"),
    ),
    "root folder": ("read-only", ("the root", "writable places", "folders of the machine", "sockets of the engine")),
    "writable folders": ("/sandbox", ("writable places", "folders in memory", "size of folders in memory")),
    "environment": ("nothing of the server's", ("variables of the container", "variables of the server")),
    "descriptors": ("three pipes", ("descriptors of code",)),
    "memory, processes, processors": (
        "the engine's control group",
        ("memory", "memory with swap", "processes", "processors"),
    ),
    "network": ("its own loopback", ("network",)),
}
"""For each layer an entry that the table lists, and the checks of that layer."""
ELSEWHERE = {"pseudo-terminals": "hostile/test_shared_counters.py"}
"""Layers that are checked in other files."""


def test_every_layer_that_the_readme_promises_for_containers_is_checked() -> None:
    promised = {layer for layer in TABLE if TABLE[layer][COLUMN] != "no"}
    assert promised == LAYERS.keys() | ELSEWHERE.keys()
    assert all(ELSEWHERE[layer] in showing(layer) for layer in ELSEWHERE)
    for layer, (said, checks) in LAYERS.items():
        assert said in listed(layer, COLUMN), layer
        assert POSTURE.keys() >= {*checks}, layer


async def test_a_running_container_is_locked_up_as_the_policy_says(seen: Seen) -> None:
    found = {name: look(seen) for name, (look, _) in POSTURE.items()}
    assert found == {name: expected for name, (_, expected) in POSTURE.items()}
    assert labels(seen) == (seen.server, True)
