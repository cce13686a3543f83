"""Control groups on a tree of plain files that behaves as the kernel does."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from llm_sandbox_mcp.backends.embedded import cgroup_files
from llm_sandbox_mcp.backends.embedded.cgroup_detect import detect
from llm_sandbox_mcp.backends.embedded.cgroups import Hierarchy, Limits, Unlimited, Version1, Version2

OWN = os.getpid()
FOREIGN = 2**22
V2_FILES = ("memory.max", "memory.swap.max", "pids.max", "cpu.max", "cgroup.kill")
V1_FILES = {
    "memory": (
        "memory.limit_in_bytes",
        "memory.memsw.limit_in_bytes",
        "memory.kmem.tcp.limit_in_bytes",
        "memory.oom_control",
    ),
    "pids": ("pids.max", "pids.events"),
    "cpu": ("cpu.cfs_period_us", "cpu.cfs_quota_us", "cpuacct.usage"),
}


class Kernel:
    """Version 2 and version 1 trees below `root`: the files are created and removed with their directory."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.refused: dict[str, int] = {}
        """The errno with which each write to a file fails, by file name."""
        self.absent: set[str] = set()
        self._mkdir, self._rmdir, self._write = os.mkdir, os.rmdir, cgroup_files.write
        patch.setattr(os, "mkdir", self.mkdir)
        patch.setattr(os, "rmdir", self.rmdir)
        patch.setattr(cgroup_files, "write", self.write)

    def unified(self, path: str, *processes: int, controllers: str = "memory pids cpu", kind: bool = True) -> Path:
        group = self.root / "unified" / path
        for directory in (*reversed(group.relative_to(self.root).parents), group.relative_to(self.root)):
            if not (self.root / directory).exists():
                self.mkdir(str(self.root / directory))
        (group / "cgroup.procs").write_text("".join(f"{process}\n" for process in processes))
        (group / "cgroup.controllers").write_text(controllers)
        if not kind:
            (group / "cgroup.type").unlink()
        return group

    def mounts(self, *controllers: str) -> str:
        root = str(self.root).replace(" ", r"\040")  # as the kernel writes it
        lines = [f"31 23 0:28 / {root} rw - tmpfs tmpfs rw", "20 1 0:1 / /proc rw shared:5 - proc proc rw"]
        for name in controllers:
            kind = "cgroup2" if name == "unified" else "cgroup"
            lines.append(f"32 31 0:29 / {root}/{name} rw,relatime shared:9 - {kind} {kind} rw,{name}")
        return "\n".join(lines) + "\n"

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        self._mkdir(path, mode)
        directory = Path(path)
        if self.root not in directory.parents:
            return
        tree = directory.relative_to(self.root).parts[0]
        texts = {"cgroup.procs": ""}
        if tree == "unified":
            texts |= dict.fromkeys(V2_FILES, "") | {"cgroup.subtree_control": "", "cgroup.type": "domain"}
            texts |= {
                "memory.events": "oom 9\noom_kill 3\n",
                "pids.events": "max 7\n",
                "cpu.stat": "usage_usec 1500000\n",
            }
        else:
            texts |= dict.fromkeys(V1_FILES[tree], "")
        for name in texts.keys() - self.absent:
            (directory / name).write_text(texts[name])

    def rmdir(self, path: str) -> None:
        directory = Path(path)
        if self.root in directory.parents and directory.exists():
            if (directory / "cgroup.procs").read_text() or any(entry.is_dir() for entry in directory.iterdir()):
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
            for entry in directory.iterdir():
                entry.unlink()
        self._rmdir(path)

    def write(self, path: str, value: str) -> None:
        file = Path(path)
        number = self.refused.get(file.name)
        if file.name == "cgroup.subtree_control":
            inner = (file.parent / "cgroup.type").exists() and (file.parent / "cgroup.procs").read_text()
            number = errno.EBUSY if inner else self.refused.get(value, number)
            value = f"{file.read_text()} {value.removeprefix('+')}".strip()
        if number is not None:
            raise OSError(number, os.strerror(number), path)
        self._write(path, value)
        if file.name == "cgroup.procs":
            for other in self.root.rglob("cgroup.procs"):
                if other != file:
                    kept = [line for line in other.read_text().splitlines() if line != value]
                    other.write_text("".join(f"{line}\n" for line in kept))
        if file.name == "cgroup.kill":
            (file.parent / "cgroup.procs").write_text("")


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    with pytest.MonkeyPatch.context() as patch:
        yield Kernel(tmp_path, patch)


def scope(kernel: Kernel, *processes: int, controllers: str = "memory pids cpu") -> Path:
    return kernel.unified("user.scope", *processes, controllers=controllers)


def found(kernel: Kernel, path: str = "/user.scope", family: tuple[int, ...] = ()) -> Hierarchy:
    return detect(f"0::{path}\n", kernel.mounts("unified"), family)


# Version 2


def test_the_server_moves_to_a_leaf_so_that_its_group_can_delegate_controllers(kernel: Kernel) -> None:
    own = scope(kernel, OWN, 77)
    hierarchy = found(kernel, family=(77,)).claim("s1")
    assert (hierarchy.version, hierarchy.reason) == (2, "")
    assert (own / "cgroup.procs").read_text() == ""
    assert (own / "llm-sandbox-mcp:server").is_dir()
    for group in (own, own / "llm-sandbox-mcp-s1"):
        assert set((group / "cgroup.subtree_control").read_text().split()) == {"memory", "pids", "cpu"}


def test_a_server_that_is_already_in_its_leaf_uses_the_group_above(kernel: Kernel) -> None:
    scope(kernel, OWN)
    assert found(kernel).claim("s1").version == 2
    again = found(kernel, "/user.scope/llm-sandbox-mcp:server").claim("s2")
    assert again.version == 2
    assert (kernel.root / "unified/user.scope/llm-sandbox-mcp-s2").is_dir()


def test_limits_are_written_and_nothing_is_degraded(kernel: Kernel) -> None:
    scope(kernel, OWN)
    group = found(kernel).claim("s1").create("b1", Limits(memory=2**29, pids=64, cpus=0.5))
    directory = kernel.root / "unified/user.scope/llm-sandbox-mcp-s1/b1"
    assert group.degraded == {}
    assert group.join_paths == [f"{directory}/cgroup.procs"]
    values = {name: (directory / name).read_text() for name in V2_FILES}
    assert values == {
        "memory.max": str(2**29),
        "memory.swap.max": "0",
        "pids.max": "64",
        "cpu.max": "50000 100000",
        "cgroup.kill": "",
    }
    assert (group.oom_kills(), group.pids_refused(), group.cpu_usage()) == (3, 7, 1.5)


def test_a_limit_that_was_not_requested_is_not_written(kernel: Kernel) -> None:
    scope(kernel, OWN)
    group = found(kernel).claim("s1").create("b1", Limits(pids=5))
    directory = Path(group.join_paths[0]).parent
    assert [(directory / name).read_text() for name in ("memory.max", "memory.swap.max", "cpu.max")] == ["", "", ""]


def test_a_tiny_share_of_cpu_becomes_the_smallest_that_the_kernel_accepts(kernel: Kernel) -> None:
    scope(kernel, OWN)
    group = found(kernel).claim("s1").create("b1", Limits(cpus=0.001))
    assert Path(group.join_paths[0]).with_name("cpu.max").read_text() == "1000 100000"


def test_a_limit_that_could_not_be_set_is_reported_and_the_others_apply(kernel: Kernel) -> None:
    scope(kernel, OWN)
    kernel.refused["cpu.max"] = errno.EINVAL
    group = found(kernel).claim("s1").create("b1", Limits(memory=2**20, pids=5, cpus=1))
    assert group.degraded == {"cpus": f"{group.join_paths[0].replace('cgroup.procs', 'cpu.max')}: Invalid argument"}
    assert Path(group.join_paths[0]).with_name("pids.max").read_text() == "5"


@pytest.mark.parametrize(("swap", "degraded"), [(True, 1), (False, 0)])
def test_missing_swap_accounting_matters_only_where_there_is_swap(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, swap: bool, degraded: int
) -> None:
    scope(kernel, OWN)
    kernel.absent.add("memory.swap.max")
    monkeypatch.setattr("llm_sandbox_mcp.backends.embedded.cgroups._has_swap", lambda: swap)
    group = found(kernel).claim("s1").create("b1", Limits(memory=2**20))
    assert len(group.degraded) == degraded


def test_a_missing_controller_is_reported_for_each_group(kernel: Kernel) -> None:
    scope(kernel, OWN, controllers="memory pids io")
    group = found(kernel).claim("s1").create("b1", Limits(memory=2**20, cpus=1))
    assert group.degraded == {"cpus": "there is no cpu controller"}


def test_a_controller_that_the_kernel_does_not_delegate_is_reported_for_each_group(kernel: Kernel) -> None:
    scope(kernel, OWN)
    kernel.refused["+cpu"] = errno.EOPNOTSUPP
    group = found(kernel).claim("s1").create("b1", Limits(memory=2**20, pids=4, cpus=1))
    assert group.degraded == {"cpus": "there is no cpu controller"}


def test_a_group_with_foreign_processes_is_left_alone_with_the_next_step(kernel: Kernel) -> None:
    own = scope(kernel, OWN, FOREIGN)
    hierarchy = found(kernel)
    assert isinstance(hierarchy, Unlimited)
    assert str(FOREIGN) in hierarchy.reason
    assert "systemd-run" in hierarchy.step
    assert "Delegate=yes" in hierarchy.step
    assert (own / "cgroup.procs").read_text() == f"{OWN}\n{FOREIGN}\n"


def test_a_foreign_process_that_arrives_after_detection_makes_the_claim_fail_with_the_reason(kernel: Kernel) -> None:
    own = scope(kernel, OWN)
    hierarchy = found(kernel)
    (own / "cgroup.procs").write_text(f"{OWN}\n{FOREIGN}\n")
    claimed = hierarchy.claim("s1")
    assert isinstance(claimed, Unlimited)
    assert "cgroup.subtree_control: Device or resource busy" in claimed.reason
    assert (own / "cgroup.procs").read_text() == f"{FOREIGN}\n"


def test_the_root_group_can_keep_its_processes(kernel: Kernel) -> None:
    root = kernel.unified(".", OWN, FOREIGN, kind=False)
    assert found(kernel, "/").claim("s1").version == 2
    assert (root / "cgroup.procs").read_text() == f"{OWN}\n{FOREIGN}\n"


def test_kill_empties_the_group_and_remove_returns_whether_it_succeeded(kernel: Kernel) -> None:
    scope(kernel, OWN)
    hierarchy = found(kernel).claim("s1")
    group = hierarchy.create("b1", Limits(pids=4))
    Path(group.join_paths[0]).write_text(f"{FOREIGN}\n")
    assert group.processes() == [FOREIGN]
    assert not group.remove()
    assert not hierarchy.close()
    assert group.kill()
    assert group.remove()
    assert group.remove()
    assert hierarchy.close()


def test_sweep_ends_the_groups_of_servers_that_are_gone_and_no_others(kernel: Kernel) -> None:
    own = scope(kernel, OWN)
    hierarchy = found(kernel).claim("s1")
    hierarchy.create("b1", Limits(pids=4))
    for server in ("gone", "alive"):
        for name in ("b1", "b2"):
            path = f"user.scope/llm-sandbox-mcp-{server}/{name}"
            (kernel.unified(path) / "cgroup.procs").write_text(f"{FOREIGN}\n")
    assert hierarchy.sweep(lambda server: server == "alive") == []
    assert not (own / "llm-sandbox-mcp-gone").exists()
    assert (own / "llm-sandbox-mcp-alive/b2/cgroup.procs").read_text() == f"{FOREIGN}\n"
    assert (own / "llm-sandbox-mcp-s1/b1").is_dir()
    assert (own / "llm-sandbox-mcp:server/cgroup.procs").read_text().split() == [str(OWN)]


def test_sweep_returns_the_servers_whose_processes_have_not_ended_yet(kernel: Kernel) -> None:
    scope(kernel, OWN)
    hierarchy = found(kernel).claim("s1")
    (kernel.unified("user.scope/llm-sandbox-mcp-gone/b1") / "cgroup.procs").write_text(f"{FOREIGN}\n")
    kernel.refused["cgroup.kill"] = errno.ENOENT
    assert hierarchy.sweep(lambda _: False) == ["gone"]


def test_a_name_that_is_taken_is_refused(kernel: Kernel) -> None:
    scope(kernel, OWN)
    hierarchy = found(kernel).claim("s1")
    hierarchy.create("b1", Limits())
    with pytest.raises(FileExistsError):
        hierarchy.create("b1", Limits())


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", ".hidden", "a\0b"])
def test_a_name_is_one_path_component(kernel: Kernel, name: str) -> None:
    scope(kernel, OWN)
    hierarchy = found(kernel)
    with pytest.raises(ValueError, match="not a name"):
        hierarchy.claim(name)
    with pytest.raises(ValueError, match="not a name"):
        hierarchy.claim("s1").create(name, Limits())


# Version 1, and the choice between the versions


def version1(kernel: Kernel, *controllers: str) -> Hierarchy:
    for name in controllers:
        kernel.mkdir(str(kernel.root / name))
        kernel.mkdir(str(kernel.root / name / "app"))
    lines = [f"{number}:{name}:/app\n" for number, name in enumerate(controllers, 1)]
    return detect("".join([*lines, "0::/\n"]), kernel.mounts(*controllers, "unified"))


def test_version_1_is_used_where_the_unified_tree_has_no_controllers(kernel: Kernel) -> None:
    kernel.unified(".", OWN, controllers="hugetlb", kind=False)
    hierarchy = version1(kernel, "memory", "pids", "cpu").claim("s1")
    assert isinstance(hierarchy, Version1)
    group = hierarchy.create("b1", Limits(memory=2**29, pids=64, cpus=2))
    assert group.degraded == {}
    assert len(group.join_paths) == 3
    below = "app/llm-sandbox-mcp-s1/b1"
    memory, cpu = kernel.root / "memory" / below, kernel.root / "cpu" / below
    for file in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.kmem.tcp.limit_in_bytes"):
        assert (memory / file).read_text() == str(2**29)
    assert (cpu / "cpu.cfs_quota_us").read_text() == "200000"
    assert group.remove()
    assert hierarchy.close()


def test_a_tree_that_is_not_mounted_degrades_its_limit_only(kernel: Kernel) -> None:
    group = version1(kernel, "pids").claim("s1").create("b1", Limits(memory=2**29, pids=64))
    assert group.degraded == {"memory": "there is no memory controller"}


def test_a_trial_group_shows_which_limits_cannot_be_set(kernel: Kernel) -> None:
    kernel.refused["cpu.cfs_quota_us"] = errno.EINVAL
    hierarchy = version1(kernel, "memory", "cpu").claim("s1")
    not_set = hierarchy.try_limits(Limits(memory=2**29, pids=64, cpus=2))
    assert set(not_set) == {"pids", "cpus", "cpu_time"}
    assert not_set["pids"] == "there is no pids controller"
    assert not_set["cpus"].endswith("cpu.cfs_quota_us: Invalid argument")
    assert hierarchy.close(), "the trial group still exists"


def test_a_group_is_refused_if_a_limit_that_worked_in_the_trial_cannot_be_set(kernel: Kernel) -> None:
    hierarchy = version1(kernel, "memory", "pids").claim("s1")
    limits = Limits(memory=2**29, pids=64, cpus=2)
    assert "memory" not in hierarchy.try_limits(limits)
    hierarchy.create("b1", limits).remove()
    kernel.refused["memory.limit_in_bytes"] = errno.EINVAL
    with pytest.raises(OSError, match=r"its limit on memory cannot be set: .*: Invalid argument"):
        hierarchy.create("b2", limits)
    assert hierarchy.close(), "the group still exists"


def test_a_half_made_group_is_removed_again(kernel: Kernel) -> None:
    hierarchy = version1(kernel, "memory", "pids").claim("s1")
    kernel.mkdir(str(kernel.root / "pids/app/llm-sandbox-mcp-s1/b1"))
    with pytest.raises(FileExistsError):
        hierarchy.create("b1", Limits())
    assert not (kernel.root / "memory/app/llm-sandbox-mcp-s1/b1").exists()


def test_the_path_of_a_group_is_found_in_a_mount_of_a_part_of_the_tree(tmp_path: Path) -> None:
    (tmp_path / "my groups" / "inner").mkdir(parents=True)
    place = str(tmp_path / "my groups").replace(" ", "\\040")
    mount = f"32 31 0:29 /docker/abc {place} rw - cgroup cgroup rw,pids\n"
    hierarchy = detect("1:pids:/docker/abc/inner\n", mount)
    assert hierarchy.bases == {"pids": str(tmp_path / "my groups" / "inner")}
    for outside in ("/docker/abcd", "/docker", "/../x"):
        assert isinstance(detect(f"1:pids:{outside}\n", mount), Unlimited)


def test_without_any_tree_every_requested_limit_is_degraded_with_the_reason() -> None:
    hierarchy = detect("", "").claim("s1")
    assert isinstance(hierarchy, Unlimited)
    group = hierarchy.create("b1", Limits(memory=1, cpus=1))
    assert group.degraded == {"memory": hierarchy.reason, "cpus": hierarchy.reason}
    assert (group.join_paths, group.processes(), group.oom_kills(), group.pids_refused()) == ([], [], 0, 0)
    assert group.cpu_usage() is None
    assert group.kill()
    assert group.remove()
    assert hierarchy.sweep(lambda _: False) == []
    assert hierarchy.close()


def test_create_before_claim_is_a_mistake(kernel: Kernel) -> None:
    with pytest.raises(RuntimeError, match="claim"):
        Version2(str(kernel.root), ()).create("b1", Limits())
