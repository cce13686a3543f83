"""The command run by an ordinary user, whose sandboxes have no control groups: limits then apply to each process."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ordinary
from tests.engines import host_folder

PROFILE = """
[backend]
name = "embedded"
[server]
runtime = "{folder}/runtime"
cache = "{folder}/cache"
[languages.python]
libraries = []
[limits]
cpu_time = "1s"
memory = "256MiB"
pids = 32
"""
BEYOND = {
    "processor time": ("while True: pass", "stopped after 1s of processor time"),
    "memory": ("x = bytearray(1 << 30)", "MemoryError"),
    "processes": ("import os\nfor _ in range(100): os.fork() or os._exit(0)", "BlockingIOError"),
}


@pytest.fixture
def folder() -> Iterator[Path]:
    with host_folder() as made:
        os.chown(made, ordinary.USER, ordinary.USER)
        profile = made / "profile.toml"
        profile.write_text(PROFILE.format(folder=made))
        profile.chmod(0o644)
        yield made


def command(packages: Path, folder: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs llm-sandbox-mcp with the profile in a folder of the user."""
    argv = ("-m", "llm_sandbox_mcp", name, "--profile", str(folder / "profile.toml"), *arguments)
    return ordinary.run(packages, *argv, cwd=folder, env={"HOME": str(folder)})


@pytest.mark.parametrize(("code", "message"), BEYOND.values(), ids=BEYOND)
def test_limits_apply_to_each_process(ordinary_packages: Path, folder: Path, code: str, message: str) -> None:
    done = command(ordinary_packages, folder, "run", "-c", code)
    assert done.returncode != 0
    assert message in done.stderr


def test_doctor_reports_that_limits_apply_to_each_process(ordinary_packages: Path, folder: Path) -> None:
    done = command(ordinary_packages, folder, "doctor")
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("limits ")]
    assert "degraded" in row
    assert "limits hold for single processes only" in row


def test_doctor_tells_which_folders_cannot_be_used_as_they_are_open(ordinary_packages: Path, folder: Path) -> None:
    """Those that are gone, too large, or another user's."""
    for name in ("own", "closed", "private", "large"):
        (folder / name).mkdir()
    for name in ("own", "large"):
        os.chown(folder / name, ordinary.USER, ordinary.USER)
    with (folder / "large" / "file").open("wb") as file:
        file.truncate(1 << 40)
    (folder / "private").chmod(0o700)
    opened = [f"{folder}/{name}" for name in ("own:rw", "closed:rw", "private", "gone", "gone-2:rwd", "large:rw")]
    with (folder / "profile.toml").open("a") as profile:
        profile.write(f"[files]\nfolders = {opened}\n")
    done = command(ordinary_packages, folder, "doctor")
    assert re.findall(r"^/data/(\S+) +(\S+) +(.*)$", done.stdout, re.MULTILINE) == [
        (
            *("own", "ok"),
            f"{folder}/own, copied into each session, and anew if it changes; "
            "what code changes is saved there when a run ends",
        ),
        ("closed", "degraded", f"{folder}/closed cannot be written"),
        ("private", "degraded", f"{folder}/private cannot be read"),
        ("gone", "degraded", f"{folder}/gone is not a folder"),
        ("gone-2", "degraded", f"{folder}/gone-2 is not a folder"),
        (
            *("large", "degraded"),
            f"{folder}/large is empty in sessions: it has more than the 512MiB or 20000 files that can be copied",
        ),
    ]
    assert re.findall(r"^  /data/(\S+): (.*)$", done.stdout, re.MULTILINE) == [
        ("closed", "allow this user to write it, or open it only for reading"),
        ("private", "allow this user to read it"),
        ("gone", "make it, or correct the path"),
        ("gone-2", "make it, or correct the path"),
        ("large", "open a part of it, or raise limits.disk"),
    ]
    assert done.stdout.endswith("Code can run here.\n") and done.returncode == 0
