"""A node of SLURM, and an ordinary user with a folder on it."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from llm_sandbox_mcp.folders import CONFIGS
from tests import ordinary
from tests.containers.engines import until
from tests.engines import absent, host_folder
from tests.engines.daemon import Unusable
from tests.engines.slurm import one_node
from tests.mcp.processes import below

USER = GROUP = ordinary.USER
LIMIT = 120.0
"""Seconds after which a command, or a job, counts as stuck."""

SETTINGS = """
[languages.python]
libraries = []
[embedded]
bwrap = "{bwrap}"
"""
COMMAND = """\
#!/bin/sh
exec /usr/bin/python3 -m llm_sandbox_mcp "$@"
"""


@dataclass(frozen=True)
class Account:
    """A user of the node, whose folder has the files of configs/slurm as they are."""

    home: Path
    environment: Mapping[str, str]

    def run(self, *argv: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end, with more in its environment."""
        return run_as(USER, *argv, cwd=self.home, env={**self.environment, **more})

    def submit(self, *argv: str, **more: str) -> "Job":
        """Submits a batch script, after options of sbatch and before its own."""
        done = self.run("sbatch", "--parsable", *argv, **more)
        assert done.returncode == 0, done
        return Job(self, done.stdout.strip())

    @property
    def scratch(self) -> Path:
        """Where jobs put what is temporary."""
        return self.home / "tmp"


@dataclass(frozen=True)
class Job:
    """A job of the user."""

    account: Account
    id: str

    @property
    def folder(self) -> Path:
        """Of its server."""
        return self.account.home / f"llm-sandbox-{self.id}"

    @property
    def said(self) -> str:
        """What it printed so far."""
        return (self.account.home / f"llm-sandbox-{self.id}.out").read_text()

    @property
    def state(self) -> str:
        """SLURM's word for it, and its exit code, such as "COMPLETED 0:0"."""
        told = self.account.run("scontrol", "show", "job", self.id).stdout
        found = re.search(r"JobState=(\w+).* ExitCode=(\d+:\d+)", told, re.DOTALL)
        assert found, told
        return f"{found[1]} {found[2]}"

    def over(self) -> bool:
        """Whether SLURM has done with it."""
        return self.state.split()[0] not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")

    def cancel(self, *options: str) -> None:
        """As the user does."""
        done = self.account.run("scancel", *options, self.id)
        assert done.returncode == 0, done

    async def listening(self) -> dict[str, str]:
        """What the file says that tells where the server listens, once it is there."""
        place = self.folder / "env"
        await until(lambda: place.exists() or self.over(), LIMIT)
        assert place.exists(), self.said
        return dict(re.findall(r"^export (LLM_SANDBOX_\w+)=(.*)$", place.read_text(), re.MULTILINE))

    def pid(self) -> int:
        """Of its script."""
        script = f"{Path(self.account.environment['SLURM_CONF']).parent}/spool/job{int(self.id):05}/slurm_script"
        found = {int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if script in _text(path)}
        # A child of the shell's is called the same until it becomes another program.
        (first,) = found - {child for pid in found for child in below(pid)}
        return first


def run_as(
    user: int, *argv: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command as a user who is in no group but one."""
    return subprocess.run(
        argv,
        user=user,
        group=GROUP,
        extra_groups=[],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


@pytest.fixture(scope="package")
def configuration() -> Iterator[Path]:
    """Of a node that is there."""
    with ExitStack() as stack:
        try:
            found = stack.enter_context(one_node())
        except Unusable as error:
            absent("slurm", str(error))
        yield found


@pytest.fixture
def account(configuration: Path, embedded: None, ordinary_packages: Path) -> Iterator[Account]:
    """The user, with an empty folder, which holds nothing of a job's afterwards but what jobs printed."""
    with host_folder() as home:
        shutil.copytree(CONFIGS / "slurm", home, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("bin", "tmp"):
            (home / name).mkdir()
        command = home / "bin/llm-sandbox-mcp"
        command.write_text(COMMAND)
        command.chmod(0o755)
        profile = home / "profile.toml"
        profile.write_text((CONFIGS / "slurm.toml").read_text() + SETTINGS.format(bwrap="bwrap"))
        for path in (home, *home.rglob("*")):
            os.chown(path, USER, GROUP)
        user = Account(
            home,
            {
                "PATH": f"{home}/bin:/usr/bin:/bin",
                "HOME": str(home),
                "TMPDIR": str(home / "tmp"),
                "SLURM_CONF": str(configuration),
                "LLM_SANDBOX_PROFILE": str(profile),
                # The system's Python: another user may not see the one of the tests.
                "PYTHONPATH": str(ordinary_packages),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
        )
        yield user


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # gone
        return ""
