"""A SLURM node, and an ordinary user with a folder on it."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from llm_sandbox_mcp.host.folders import CONFIGS
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
    """A user of the node; the home folder contains the unchanged files of configs/slurm."""

    home: Path
    environment: Mapping[str, str]

    def run(self, *argv: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end; `more` is added to its environment."""
        return run_as(USER, *argv, cwd=self.home, env={**self.environment, **more})

    def submit(self, *argv: str, **more: str) -> "Job":
        """Submits a batch script: options of sbatch, the script, then its own arguments."""
        done = self.run("sbatch", "--parsable", *argv, **more)
        assert done.returncode == 0, done
        return Job(self, done.stdout.strip())

    @property
    def scratch(self) -> Path:
        """The folder for temporary files of jobs."""
        return self.home / "tmp"


@dataclass(frozen=True)
class Job:
    """A job of the user."""

    account: Account
    id: str

    @property
    def folder(self) -> Path:
        """The folder of its server."""
        return self.account.home / f"llm-sandbox-{self.id}"

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return (self.account.home / f"llm-sandbox-{self.id}.out").read_text()

    @property
    def state(self) -> str:
        """Its state in SLURM and its exit code, such as "COMPLETED 0:0"."""
        shown = self.account.run("scontrol", "show", "job", self.id).stdout
        found = re.search(r"JobState=(\w+).* ExitCode=(\d+:\d+)", shown, re.DOTALL)
        assert found, shown
        return f"{found[1]} {found[2]}"

    def over(self) -> bool:
        """Whether it has ended."""
        return self.state.split()[0] not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")

    def cancel(self, *options: str) -> None:
        """Cancels it, as the user does."""
        done = self.account.run("scancel", *options, self.id)
        assert done.returncode == 0, done

    async def listening(self) -> dict[str, str]:
        """Waits until the server listens; returns the variables in the job's file `env`."""
        place = self.folder / "env"
        await until(lambda: place.exists() or self.over(), LIMIT)
        assert place.exists(), self.output
        return dict(re.findall(r"^export (LLM_SANDBOX_\w+)=(.*)$", place.read_text(), re.MULTILINE))

    def pid(self) -> int:
        """The pid of its script."""
        script = f"{Path(self.account.environment['SLURM_CONF']).parent}/spool/job{int(self.id):05}/slurm_script"
        found = {int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if script in _text(path)}
        # A child of the shell has the same command line until it starts another program.
        (first,) = found - {child for pid in found for child in below(pid)}
        return first


def run_as(
    user: int, *argv: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command as a user who is in only one group."""
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
    """The slurm.conf of a running node."""
    with ExitStack() as stack:
        try:
            found = stack.enter_context(one_node())
        except Unusable as error:
            absent("slurm", str(error))
        yield found


@pytest.fixture
def account(configuration: Path, embedded: None, ordinary_packages: Path) -> Iterator[Account]:
    """The user, with a new home folder."""
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
                # For the system's Python: another user may not be able to read the Python of the tests.
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
