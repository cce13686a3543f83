"""`doctor` reports whether each layer in the table is active; without a layer, the others still protect."""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from llm_sandbox_mcp.backends.calls import CALLS
from llm_sandbox_mcp.backends.embedded import landlock
from tests.engines import host_folder
from tests.promises import TABLE

from .command import ARGV, LIMIT, environment, ran

pytestmark = pytest.mark.usefixtures("embedded")

ROWS = {"memory, processes, processors": "limits"}
"""Shorter names that `doctor` uses for layers."""
WITHOUT = """
import ctypes, os, struct, sys
answers, argv = sys.argv[1].split(), sys.argv[2:]
code = b''
for answer in answers:
    number, argument, error = map(int, answer.split(':'))
    if argument >= 0:
        code += struct.pack('<HBBI', 0x20, 0, 0, 0) + struct.pack('<HBBI', 0x15, 0, 3, number)
        code += struct.pack('<HBBI', 0x20, 0, 0, 16) + struct.pack('<HBBI', 0x15, 0, 1, argument)
    else:
        code += struct.pack('<HBBI', 0x20, 0, 0, 0) + struct.pack('<HBBI', 0x15, 0, 1, number)
    code += struct.pack('<HBBI', 0x06, 0, 0, 0x50000 | error)
code += struct.pack('<HBBI', 0x06, 0, 0, 0x7FFF0000)
kept = ctypes.create_string_buffer(code, len(code))
program = struct.pack('HxxxxxxQ', len(code) // 8, ctypes.addressof(kept))
if ctypes.CDLL(None, use_errno=True).prctl(22, 2, program, 0, 0):
    raise SystemExit(f'cannot take calls away: {os.strerror(ctypes.get_errno())}')
os.execvp(argv[0], argv)
"""
"""Runs a command while some system calls fail with an error; each is `number:first argument or -1:error`."""
EINVAL, ENOSYS = 22, 38
NO_LANDLOCK = f"444:-1:{ENOSYS}"


def no_filters() -> str:
    """The system calls that fail on a kernel without filters for system calls."""
    seccomp, prctl = (CALLS[name].numbers[platform.machine()] for name in ("seccomp", "prctl"))
    return f"{seccomp}:-1:{ENOSYS} {prctl}:22:{EINVAL}"


def failing(calls: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the command while these system calls fail."""
    if os.geteuid() != 0:
        pytest.skip("needs root to make only these system calls fail")
    return _run([sys.executable, "-c", WITHOUT, calls, *ARGV, *arguments])


def _run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, env=environment(), check=False)


def states(doctor: str) -> dict[str, str]:
    rows = re.findall(r"^(\S.*?) {2,}(ok|degraded|missing)\b", doctor, re.MULTILINE)
    return dict(rows)


@pytest.fixture(scope="module")
def usual() -> dict[str, str]:
    """The states that `doctor` reports when no layer is removed."""
    done = ran("doctor")
    assert done.returncode == 0, done
    return states(done.stdout)


def test_doctor_has_a_row_for_each_layer_of_the_readme(usual: dict[str, str]) -> None:
    found = usual
    assert {ROWS.get(layer, layer) for layer in TABLE} <= found.keys()
    depend_on_the_machine = {"Landlock", "limits", "user of the machine", "pseudo-terminals"}
    assert {
        found[ROWS.get(layer, layer)] for layer in TABLE if ROWS.get(layer, layer) not in depend_on_the_machine
    } == {"ok"}
    assert found["Landlock"] == ("ok" if landlock.version() else "degraded")


def test_a_bubblewrap_that_makes_no_namespace_for_control_groups_is_reported(usual: dict[str, str]) -> None:
    every = "--unshare-user --unshare-pid --unshare-net --unshare-ipc --unshare-uts"
    script = f"""#!/bin/bash
for one; do
    case $one in
        --unshare-cgroup-try) ;;
        --unshare-all) set -- "$@" {every} ;;
        *) set -- "$@" "$one" ;;
    esac
    shift
done
exec bwrap "$@"
"""
    with host_folder() as folder:
        folder.chmod(0o755)
        program = folder / "bwrap"
        program.write_text(script)
        program.chmod(0o755)
        profile = folder / "profile.toml"
        # A fork makes its own namespaces.
        profile.write_text(f'[embedded]\nbwrap = "{program}"\nzygotes = false\n')
        done = ran("doctor", "--profile", str(profile))
    assert re.search(r"\nnamespaces +degraded +control group shared with others", done.stdout), done
    alone = {name: state for name, state in usual.items() if name != "shared files"}  # only forks share any
    assert states(done.stdout) == {**alone, "namespaces": "degraded"}


@pytest.mark.only_in_all
def test_without_landlock_it_is_reported_as_off_and_other_layers_still_protect(usual: dict[str, str]) -> None:
    done = failing(NO_LANDLOCK, "doctor")
    assert done.returncode == 0, done
    assert re.search(r"\nLandlock +degraded +not in this kernel; only the mounts limit", done.stdout), done.stdout
    assert states(done.stdout) == {**usual, "Landlock": "degraded"}
    code = "ls /root /var /run 2>&1 | grep -c 'No such file'; touch /usr/x 2>&1 | grep -o 'Read-only file system'"
    ran = failing(NO_LANDLOCK, "run", "--language", "bash", "-c", code)
    assert (ran.returncode, ran.stdout) == (0, "3\nRead-only file system\n"), ran


@pytest.mark.only_in_all
def test_without_filters_for_system_calls_nothing_runs() -> None:
    done = failing(no_filters(), "doctor")
    assert done.returncode == 1, done
    assert states(done.stdout)["sandbox"] == "missing"
    assert done.stdout.endswith("Code cannot run here.\n")
    ran = failing(no_filters(), "run", "--language", "bash", "-c", "echo unfiltered")
    assert (ran.returncode, ran.stdout) == (2, ""), ran
    assert "SECCOMP" in ran.stderr


@pytest.mark.only_in_all
def test_without_control_groups_they_are_reported_as_off_and_limits_apply_to_each_process(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to remove control groups")
    argv = ["unshare", "--mount", "sh", "-c", 'umount -R /sys/fs/cgroup && exec "$@"', "sh", *ARGV]
    done = _run([*argv, "doctor"])
    assert done.returncode == 0, done
    assert re.search(r"\nlimits +degraded +limits hold for single processes only", done.stdout), done.stdout
    assert _limits_of_a_process(argv, tmp_path) == ["65536", "20"]


@pytest.mark.only_in_all
@pytest.mark.parametrize("controller", ["memory", "pids"])
def test_without_one_controller_only_its_limit_applies_to_each_process(tmp_path: Path, controller: str) -> None:
    argv = _without(controller)
    done = _run([*argv, "doctor"])
    assert done.returncode == 0, done
    missing = rf"\({controller}: there is no {controller} controller\)"
    assert re.search(
        rf"\nlimits +degraded +some limits do not hold for all processes together {missing}", done.stdout
    ), done.stdout
    memory, processes = _limits_of_a_process(argv, tmp_path)
    assert (memory == "65536", processes == "20") == (controller == "memory", controller == "pids")


def test_if_all_limits_are_required_nothing_runs_without_one(tmp_path: Path) -> None:
    profile = tmp_path / "own.toml"
    profile.write_text("[backend]\nrequire_limits = true\n")
    run = ["run", "--profile", str(profile), "--language", "bash", "-c", "echo ran"]
    assert _run([*ARGV, *run]).stdout == "ran\n"
    ran = _run([*_without("pids"), *run])
    assert (ran.returncode, ran.stdout) == (2, ""), ran
    assert (
        "backend.require_limits is set, and some limits do not hold for all processes together (pids: there is"
        in ran.stderr
    )
    done = _run([*_without("pids"), "doctor", "--profile", str(profile)])
    assert done.returncode == 1, done
    assert states(done.stdout)["limits"] == "missing"


def _without(controller: str) -> list[str]:
    """The command, run without this controller in any control group."""
    if os.geteuid() != 0 or not Path("/sys/fs/cgroup", controller).is_mount():
        pytest.skip("needs root and control groups of version 1 to remove a controller")
    script = f'umount /sys/fs/cgroup/{controller} && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "sh", *ARGV]


def _limits_of_a_process(argv: Sequence[str], folder: Path) -> list[str]:
    """The memory limit of a process in KiB, and its limit on the number of processes."""
    profile = folder / "limits.toml"
    profile.write_text('[limits]\nmemory = "64MiB"\npids = 20\n')
    code = "ulimit -Hd; ulimit -Hu"
    ran = _run([*argv, "run", "--profile", str(profile), "--language", "bash", "-c", code])
    assert ran.returncode == 0, ran
    return ran.stdout.split()
