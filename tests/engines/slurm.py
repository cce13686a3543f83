"""SLURM with one node, only for the tests: its daemons are child processes of the caller and listen on loopback."""

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from llm_sandbox_mcp.testing.profiles import host_folder

from .daemon import Unusable

PROGRAMS = {"slurmctld": "slurm-wlm", "slurmd": "slurm-wlm", "sbatch": "slurm-wlm", "munged": "munge"}
"""The programs that it needs, and the Debian package of each."""

_PATIENCE = 60.0
"""Seconds after which a daemon that does not answer counts as stuck."""
_POLL = 0.05
_SYSTEM_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"

# The node is declared larger than it may be, so that tests do not depend on the size of this machine. Jobs are not
# bound to processors or control groups: how SLURM limits a job is not tested here.
_CONFIGURATION = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/builtin
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
NodeName={host} NodeAddr=127.0.0.1 CPUs=16 RealMemory=100000 State=IDLE
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@contextmanager
def one_node() -> Iterator[Path]:
    """Starts it and yields its configuration file, for SLURM_CONF; raises `Unusable` if it does not start."""
    if os.geteuid() != 0:
        raise Unusable("only root can start its daemons, which run jobs of other users")
    missing = [program for program in PROGRAMS if not shutil.which(program, path=_SYSTEM_PATH)]
    if missing:
        raise Unusable(f"missing: {', '.join(missing)}; apt-get install slurm-wlm munge")
    with host_folder() as folder, ExitStack() as daemons:
        configuration = folder / "slurm.conf"
        with _free_ports(2) as ports:
            configuration.write_text(_CONFIGURATION.format(folder=folder, host=_host(), ports=ports))
        # SLURM 22.05 always loads a plugin for control groups, which is not used here.
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        (folder / "munge").mkdir(mode=0o755)
        (folder / "state").mkdir()
        key = folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(128))
        places = {"key-file": key, "socket": folder / "munge/socket"}
        places |= {f"{name}-file": folder / f"munged.{name}" for name in ("pid", "log", "seed")}
        options = [f"--{name}={place}" for name, place in places.items()]
        at = f"--socket={folder}/munge/socket"
        munged = daemons.enter_context(_daemon(folder, "munged", "--foreground", "--force", *options))
        munged.until("munge", "--no-input", at)
        controller = daemons.enter_context(_daemon(folder, "slurmctld", "-D", "-f", str(configuration)))
        controller.until("scontrol", "ping", output="is UP")
        node = daemons.enter_context(_daemon(folder, "slurmd", "-D", "-f", str(configuration)))
        idle = ("sinfo", "--noheader", "--format=%T")
        node.until(*idle, output="idle")
        try:
            yield configuration
        finally:
            # Jobs would outlive the daemons.
            subprocess.run(["scancel", "--partition=all"], env=node.environment, timeout=_PATIENCE, check=True)
            node.until(*idle, output="idle")


@dataclass(frozen=True)
class _Daemon:
    process: subprocess.Popen[bytes]
    log: Path
    environment: dict[str, str]

    def until(self, *command: str, output: str = "") -> None:
        """Repeats a command that queries the daemon until it succeeds and its output contains `output`."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            with suppress(subprocess.TimeoutExpired):
                done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=_PATIENCE)
                if done.returncode == 0 and output in done.stdout:
                    return
            last = self.log.read_text(errors="replace").strip().splitlines()[-1:] or ["it printed nothing"]
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_POLL)
                raise Unusable(f"{self.log.stem} ended at once: {last[0]}")
            if time.monotonic() > deadline:
                raise Unusable(f"{self.log.stem} did not answer within {_PATIENCE:.0f} s: {last[0]}")


@contextmanager
def _daemon(folder: Path, name: str, *options: str) -> Iterator[_Daemon]:
    """Runs a daemon until the scope or this process ends; its output goes to a file with its name."""
    program = shutil.which(name, path=_SYSTEM_PATH)
    assert program
    log = folder / f"{name}.out"
    argv = ["setpriv", "--pdeathsig", "TERM", program, *options]
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd="/"
        )
    try:
        yield _Daemon(process, log, _environment(folder / "slurm.conf"))
    finally:
        process.terminate()
        try:
            process.wait(20)
        finally:
            process.kill()
            process.wait()


def _environment(configuration: Path) -> dict[str, str]:
    return {"PATH": _SYSTEM_PATH, "SLURM_CONF": str(configuration)}


def _host() -> str:
    return socket.gethostname().partition(".")[0]


@contextmanager
def _free_ports(count: int) -> Iterator[list[int]]:
    with ExitStack() as held:
        listeners = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        yield [listener.getsockname()[1] for listener in listeners]
