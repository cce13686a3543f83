"""Limits that this machine cannot give are refused, if the operator wrote them."""

from pathlib import Path

import pytest

from llm_sandbox_mcp.base.errors import ProfileError
from llm_sandbox_mcp.host.folders import CONFIGS
from llm_sandbox_mcp.profile.machine import check_limits, limit_mistakes, machine_memory
from llm_sandbox_mcp.profile.profile import Profile, load_profile

GIB = 1 << 30


def small() -> int:
    """The memory of a machine that cannot reach the default limits."""
    return GIB // 2


def written(folder: Path, text: str) -> Profile:
    (folder / "own.toml").write_text(text)
    return load_profile(str(folder / "own.toml"))


@pytest.mark.parametrize("key", ["memory", "disk", "file_size"])
def test_more_memory_than_the_machine_has_is_refused_with_the_most_that_can_be_given(key: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError) as raised:
        check_limits(written(tmp_path, f'[limits]\n{key} = "999TiB"\n'), lambda: 24 * GIB + 5)
    reason = '999TiB is more memory than this machine has; give at most "24576MiB"'
    assert str(raised.value) == f"{tmp_path}/own.toml: limits.{key}: {reason}"
    check_limits(written(tmp_path, f'[limits]\n{key} = "24576MiB"\n'), lambda: 24 * GIB + 5)


def test_what_firmware_and_kernel_keep_of_the_memory_does_not_count(tmp_path: Path) -> None:
    bought = written(tmp_path, '[limits]\nmemory = "8GiB"\n')
    # An eighth of what is left: 8 GiB are 9/8 of 7.11 GiB.
    check_limits(bought, lambda: int(7.12 * GIB))
    with pytest.raises(ProfileError):
        check_limits(bought, lambda: int(7.1 * GIB))


def test_all_such_limits_are_found(tmp_path: Path) -> None:
    profile = written(tmp_path, '[limits]\nmemory = "1GiB"\ndisk = "1GiB"\nfile_size = "1MiB"\ncpus = 500\n')
    assert [mistake.key for mistake in limit_mistakes(profile, small)] == ["limits.memory", "limits.disk"]


@pytest.mark.parametrize("name", [None, "default", "generous", str(CONFIGS / "generous.toml")])
def test_the_included_profiles_start_on_machines_of_any_size(name: str | None) -> None:
    check_limits(load_profile(name), small)


def test_limits_that_the_operator_did_not_write_are_not_refused(tmp_path: Path) -> None:
    check_limits(written(tmp_path, "[limits]\npids = 9\n"), small)
    check_limits(load_profile(over={"limits": {"memory": "999TiB"}}), small)


@pytest.mark.parametrize("backend", ["docker", "podman", "auto"])
def test_an_engine_can_be_on_a_larger_machine(backend: str, tmp_path: Path) -> None:
    check_limits(written(tmp_path, f'[backend]\nname = "{backend}"\n[limits]\nmemory = "999TiB"\n'), small)


def test_the_memory_is_that_of_the_machine_or_of_the_smallest_control_group(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"

    def limit(file: str, text: str) -> None:
        (groups / file).parent.mkdir(parents=True, exist_ok=True)
        (groups / file).write_text(text)

    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal:        4194304 kB\nMemFree: 1 kB\n")
    assert machine_memory(proc, groups) == 4 * GIB
    (proc / "self/cgroup").write_text("0::/job/step\n")
    limit("job/step/memory.max", "max\n")
    assert machine_memory(proc, groups) == 4 * GIB
    limit("job/memory.max", f"{2 * GIB}\n")
    assert machine_memory(proc, groups) == 2 * GIB
    # The groups of other controllers can have other names, and say nothing about memory.
    limit("memory/memory.limit_in_bytes", f"{GIB}\n")
    (proc / "self/cgroup").write_text("4:pids:/\n1:name=systemd:/\n0::/job/step\n")
    assert machine_memory(proc, groups) == 2 * GIB
    # In a container with the host's path, only the root of the mounted tree exists.
    (proc / "self/cgroup").write_text("5:cpu,memory:/docker/abc\n4:pids:/docker/abc\n0::/docker/abc\n")
    assert machine_memory(proc, groups) == GIB
