"""Where sandboxes cannot be made, the probe reports the cause and the fix, and no code runs without a sandbox."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from llm_sandbox_mcp.backends.embedded import probe

SWITCHES = {
    ".dockerenv": ("", "inside a container"),
    "run/.containerenv": ("", "inside a container"),
    "proc/sys/kernel/apparmor_restrict_unprivileged_userns": ("1\n", "apparmor_parser"),
    "proc/sys/kernel/unprivileged_userns_clone": ("0\n", "kernel.unprivileged_userns_clone=1"),
    "proc/sys/user/max_user_namespaces": ("0\n", "user.max_user_namespaces="),
}


@pytest.mark.parametrize("switch", SWITCHES)
def test_the_switch_that_forbids_namespaces_is_named_with_its_remedy(tmp_path: Path, switch: str) -> None:
    content, expected = SWITCHES[switch]
    path = tmp_path / switch
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    assert expected in probe.remedy(tmp_path)


def test_without_a_known_cause_the_remedy_is_a_command_to_try(tmp_path: Path) -> None:
    assert "bwrap --unshare-all" in probe.remedy(tmp_path)


def test_a_missing_bubblewrap_is_reported_with_its_package() -> None:
    obstacle = probe.obstacle("bwrap-that-is-not-there")
    assert obstacle is not None
    assert "not on PATH" in obstacle.cause
    assert "bubblewrap" in obstacle.step


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to take away the right to make namespaces")
@pytest.mark.parametrize(("command", "status"), [(("run", "-c", "print('unsandboxed')"), 2), (("doctor",), 1)])
def test_nothing_runs_where_namespaces_are_forbidden(tmp_path: Path, command: tuple[str, ...], status: int) -> None:
    """Runs in a new user namespace in which the kernel allows no further ones, as in a locked-down container."""
    profile = tmp_path / "profile.toml"
    profile.write_text(f'[server]\nruntime = "{tmp_path}/runtime"\n')
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    argv = ["unshare", "--user", "--map-root-user", "sh", "-c", forbid, "sh"]
    python = [sys.executable, "-m", "llm_sandbox_mcp", command[0], "--profile", str(profile), *command[1:]]
    done = subprocess.run([*argv, *python], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status, done
    assert "unsandboxed" not in done.stdout
    assert "bubblewrap" in done.stdout + done.stderr
