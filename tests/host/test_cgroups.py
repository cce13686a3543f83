"""Control groups in the kernel: a process over a limit is stopped and counted, and nothing is left behind."""

import ctypes
import json
import os
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from llm_sandbox_mcp.backends.counters import Counters
from llm_sandbox_mcp.backends.embedded.cgroup import Group
from llm_sandbox_mcp.backends.embedded.cgroup_detect import detect
from llm_sandbox_mcp.backends.embedded.cgroup_files import processes
from llm_sandbox_mcp.backends.embedded.cgroups import Hierarchy, Limits, Unlimited, Version2
from llm_sandbox_mcp.backends.embedded.child import Child
from llm_sandbox_mcp.backends.embedded.launcher import Launcher
from llm_sandbox_mcp.backends.embedded.launching import open_launcher
from tests import ordinary

JOIN = """
import os, sys
for path in sys.argv[1:]:
    with open(path, "w") as file: file.write("0")
"""


PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 36, 37


@pytest.fixture(autouse=True)
def reaped() -> Iterator[None]:
    """Makes the test runner the parent of orphans; process 1 here may not reap them and would keep zombies."""
    libc = ctypes.CDLL(None)
    others = children()
    before = ctypes.c_int()
    libc.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    yield
    # Restored, because other test files, which may run later, check the children of the test runner.
    libc.prctl(PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)
    for pid in children() - others:
        eventually(partial(has_ended, pid))


def children() -> set[int]:
    """The children of the test runner, including those that other tests have left to it, which may run forever."""
    return {int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}


def has_ended(pid: int) -> bool:
    """Whether a child has ended; reaps it."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def eventually(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline, "not within 30 s"
        os.sched_yield()


def ended(group: Group) -> bool:
    group.kill()
    return group.remove()


def unclaimed(version: int) -> Hierarchy:
    """An unclaimed hierarchy; skips where there is none. Moving the test runner is left to the tests on plain files."""
    if os.getuid() != 0:
        pytest.skip("only root is allowed to write the tree of control groups here")
    if version == 1:
        hierarchy = detect()
        if hierarchy.version != 1:
            pytest.skip(f"version 1 is not used here: {hierarchy.reason or 'version 2 is'}")
        return hierarchy
    mounts = [line.split(" ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    places = [fields[4] for fields in mounts if fields[fields.index("-") + 1] == "cgroup2"]
    path = next((line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line[:3] == "0::"), None)
    if not places or path is None or not os.access(places[0] + path, os.W_OK):
        pytest.skip("no writable version 2 tree")
    return Version2((places[0] + path).rstrip("/"), ())


@pytest.fixture(params=[1, 2])
def hierarchy(request: pytest.FixtureRequest) -> Iterator[Hierarchy]:
    claimed = unclaimed(request.param).claim(f"test-{os.getpid()}")
    assert not isinstance(claimed, Unlimited), claimed.reason
    yield claimed
    eventually(claimed.close)


@pytest.fixture
def version1() -> Iterator[Hierarchy]:
    claimed = unclaimed(1).claim(f"test-{os.getpid()}")
    yield claimed
    eventually(claimed.close)


def start(group: Group, code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-I", "-c", JOIN + textwrap.dedent(code), *group.join_paths],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_memory_bomb_is_killed_and_counted(version1: Hierarchy) -> None:
    group = version1.create("bomb", Limits(memory=64 * 2**20, pids=64, cpus=1.0))
    assert group.degraded == {}
    with start(group, "held = []\nwhile True: held.append(bytearray(2**20))") as bomb:
        bomb.wait(30)
    assert bomb.returncode == -9
    assert group.oom_kills() == 1
    assert group.pids_refused() == 0
    eventually(group.remove)


def test_open_counters_follow_the_kernel_and_raise_when_the_group_is_gone(version1: Hierarchy) -> None:
    group = version1.create("followed", Limits(memory=64 * 2**20, pids=1))
    counters = Counters(group.version, group.by_controller)
    assert (counters.oom_kills(), counters.pids_refused()) == (0, 0)
    code = """
        try: os.fork()
        except BlockingIOError: pass
        held = []
        while True: held.append(bytearray(2**20))
    """
    with start(group, code) as bomb:
        bomb.wait(30)
    assert (counters.oom_kills(), counters.pids_refused()) == (1, 1)
    eventually(group.remove)
    with pytest.raises(OSError, match="No such device"):
        counters.oom_kills()
    counters.close()
    with pytest.raises(OSError, match="No such file"):
        Counters(group.version, group.by_controller)


def test_a_fork_over_the_limit_is_refused_and_counted_and_the_children_are_killed(version1: Hierarchy) -> None:
    group = version1.create("forks", Limits(pids=10))
    code = """
        made = 1
        while True:
            try:
                if os.fork() == 0: sys.stdin.read()
                made += 1
            except BlockingIOError:
                break
        print(made, flush=True)
        sys.stdin.read()
    """
    with start(group, code) as bomb:
        assert bomb.stdout is not None
        assert bomb.stdout.readline() == "10\n"
        assert len(group.processes()) == 10
        refused = group.pids_refused()
        assert refused >= 1
        assert group.oom_kills() == 0
        group.kill()
        bomb.wait(5)
    assert bomb.returncode == -9
    eventually(lambda: ended(group))
    assert group.pids_refused() == refused
    assert group.processes() == []


def test_processes_that_fork_constantly_are_ended(version1: Hierarchy) -> None:
    group = version1.create("storm", Limits(pids=40))
    code = """
        print("started", flush=True)
        while True:
            try:
                if os.fork() == 0 and os.getpid() % 3 == 0: os._exit(0)
                os.waitpid(-1, os.WNOHANG)
            except (BlockingIOError, ChildProcessError):
                pass
    """
    with start(group, code) as storm:
        assert storm.stdout is not None
        storm.stdout.readline()
        eventually(lambda: ended(group))
        storm.wait(5)
    assert not any(Path(path).parent.exists() for path in group.join_paths)


def test_a_family_of_processes_is_ended(hierarchy: Hierarchy) -> None:
    group = hierarchy.create("family", Limits())
    code = """
        for _ in range(4): os.fork()
        os.setsid() if os.getpid() != os.getsid(0) else None
        os.write(1, b"in\\n")
        sys.stdin.read()
    """
    with start(group, code) as parent:
        assert parent.stdout is not None
        assert [parent.stdout.readline() for _ in range(16)] == ["in\n"] * 16
        assert len(group.processes()) == 16
        eventually(lambda: ended(group))
        parent.wait(5)
    assert parent.returncode == -9


def test_a_busy_group_is_not_removed(hierarchy: Hierarchy) -> None:
    group = hierarchy.create("busy", Limits())
    with start(group, "print('in', flush=True)\nsys.stdin.read()") as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert group.processes() == [child.pid]
        assert not group.remove()
        assert group.processes() == [child.pid]
        eventually(lambda: ended(group))
        child.wait(5)
    assert child.returncode == -9


def test_sweep_ends_the_processes_of_a_server_that_is_gone(hierarchy: Hierarchy) -> None:
    gone = type(hierarchy)(dict(hierarchy.bases)) if hierarchy.version == 1 else unclaimed(2)
    server = f"gone-{os.getpid()}"
    group = gone.claim(server).create("left", Limits())
    with start(group, "print('in', flush=True)\nsys.stdin.read()") as child:
        assert child.stdout is not None
        child.stdout.readline()
        # Other servers on this machine have their own groups.
        eventually(lambda: hierarchy.sweep(lambda other: other != server) == [])
        child.wait(5)
    assert child.returncode == -9
    assert not any(Path(path).parent.parent.exists() for path in group.join_paths)


def test_a_launcher_removes_the_group_of_an_earlier_server_once_its_processes_have_ended(tmp_path: Path) -> None:
    server = f"left-{os.getpid()}"
    group = unclaimed(1).claim(server).create("one", Limits())
    # A process with this much memory takes a while to end.
    with start(group, "held = bytearray(b'x') * (400 << 20)\nprint('in', flush=True)\nsys.stdin.read()") as child:
        assert child.stdout is not None
        child.stdout.readline()
        anyio.run(_launcher_until, server, tmp_path, lambda: not any(map(os.path.exists, group.join_paths)))
        child.wait(5)
    assert child.returncode == -9


async def _launcher_until(server: str, folder: Path, done: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        async with open_launcher() as launcher, anyio.create_task_group() as tasks:
            tasks.start_soon(launcher.serve)
            assert await launcher.start(server, folder / "runtime", {"stage": folder}, ["/bin/true"])
            await anyio.to_thread.run_sync(eventually, done)
            tasks.cancel_scope.cancel()


def test_an_ordinary_user_gets_no_groups_and_the_reason(ordinary_packages: Path) -> None:
    code = """
from llm_sandbox_mcp.backends.embedded.cgroup_detect import detect
print(type(detect()).__name__, detect().step)
"""
    answer = ordinary.run(ordinary_packages, "-c", code)
    assert answer.stdout.startswith(("Unlimited start ", "Unlimited mount ")), answer


def test_the_test_runner_itself_is_never_moved(hierarchy: Hierarchy) -> None:
    for base in set(hierarchy.bases.values()):
        assert os.getpid() in processes(base)


def test_the_launcher_reports_an_exit_even_if_only_a_part_of_the_group_could_be_removed_at_first(
    version1: Hierarchy, tmp_path: Path
) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    group = version1.create("partly", Limits(memory=64 * 2**20, pids=8))
    launcher = Launcher(theirs)
    log = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    launcher._children["one"] = Child(pid=0, log=log, group=group, running=False)
    inside = Path(group.by_controller["memory"], "kept")
    inside.mkdir()
    launcher.settle()
    assert not Path(group.by_controller["pids"]).exists()
    launcher.settle()
    inside.rmdir()

    def settled() -> bool:
        launcher.settle()
        return not launcher.unsettled

    eventually(settled)
    with ours, theirs:
        assert json.loads(ours.recv(4096))["event"] == "exited"
