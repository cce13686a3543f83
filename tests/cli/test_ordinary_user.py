"""The command for an ordinary user, whose sandboxes have no control groups: single processes are limited then."""

import os
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines import host_folder

ROOT = Path(__file__).parents[2]
NOBODY = 65534
PROFILE = """
[backend]
name = "embedded"
[embedded]
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


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    with host_folder() as made:
        os.chown(made, NOBODY, NOBODY)
        (made / "profile.toml").write_text(PROFILE.format(folder=made))
        answer = command(made, "--version")
        if answer.returncode:
            pytest.skip(f"another user cannot run this checkout: {answer.stderr[-200:]}")
        yield made


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs it with the system's Python: another user may not see the one of the tests."""
    profile = () if arguments == ("--version",) else ("--profile", str(folder / "profile.toml"))
    return subprocess.run(
        ["/usr/bin/python3", "-m", "llm_sandbox_mcp", *arguments[:1], *profile, *arguments[1:]],
        cwd=folder,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "PYTHONPATH": f"{ROOT}:{sysconfig.get_path('purelib')}",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(("code", "said"), BEYOND.values(), ids=BEYOND)
def test_limits_hold_for_single_processes(folder: Path, code: str, said: str) -> None:
    done = command(folder, "run", "-c", code)
    assert done.returncode != 0
    assert said in done.stderr


def test_doctor_says_so(folder: Path) -> None:
    done = command(folder, "doctor")
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("control groups")]
    assert "degraded" in row
    assert "limits hold for single processes only" in row
