"""A bubblewrap server with processes of each kind in its sandboxes, as root of the machine sees them."""

import json
import os
import re
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests import ordinary
from tests.engines import MIB, host_folder, plain_handlers
from tests.promises import ROOT

SECRET = "posture-secret-5e1c"
"""A value in the environment of the server."""
PIDS, MEMORY = 48, 256 * MIB
_PROGRAM = Path(__file__).with_name("posture_program.py")
_PROFILE = """
[limits]
memory = "256MiB"
pids = 48
[server]
runtime = "{folder}/runtime"
cache = "{folder}/cache"
[handlers]
folders = ["{folder}/handlers"]
[pool]
min = 0
[network]
mode = "{network}"
[languages.python]
libraries = []
index = "http://127.0.0.1:{port}/simple/"
"""


@dataclass(frozen=True)
class Process:
    """One process, by its pid on the machine."""

    pid: int

    def read(self, name: str) -> str:
        return Path(f"/proc/{self.pid}/{name}").read_text(errors="replace")

    def status(self, key: str) -> str:
        found = re.search(rf"^{key}:[ \t]*(.*)$", self.read("status"), re.MULTILINE)
        assert found, key
        return found[1]

    def namespace(self, name: str) -> str:
        return os.readlink(f"/proc/{self.pid}/ns/{name}")

    def children(self) -> Iterator["Process"]:
        for task in os.listdir(f"/proc/{self.pid}/task"):
            yield from (Process(int(pid)) for pid in self.read(f"task/{task}/children").split())

    def descriptors(self) -> Mapping[str, str]:
        """The target of each descriptor, by its number."""
        folder = Path(f"/proc/{self.pid}/fd")
        return {entry.name: os.readlink(entry) for entry in folder.iterdir()}

    def mount_of(self, descriptor: str) -> str:
        found = re.search(r"^mnt_id:\s*(\d+)$", self.read(f"fdinfo/{descriptor}"), re.MULTILINE)
        assert found
        return found[1]

    def variables(self) -> set[str]:
        return {entry for entry in self.read("environ").split("\0") if entry}

    def group(self, controller: str) -> str:
        """Its control group for a controller, with either version of control groups."""
        groups = dict(line.split(":", 2)[1:] for line in self.read("cgroup").splitlines())
        return groups.get(controller, groups.get("", ""))

    def limits(self) -> Mapping[str, str]:
        """The hard limits, by their names."""
        rows = (re.split(r"\s{2,}", line.strip()) for line in self.read("limits").splitlines()[1:])
        return {name: hard for name, _, hard, *_ in rows}

    def interfaces(self) -> set[str]:
        return {line.partition(":")[0].strip() for line in self.read("net/dev").splitlines()[2:]}

    def mounts(self) -> Mapping[str, tuple[str, set[str], str, str]]:
        """For each mount point: mount id, mount options, type of the file system, options of the file system."""
        found = {}
        for line in self.read("mountinfo").splitlines():
            here, _, there = line.partition(" - ")
            number, _, _, _, place, options, *_ = here.split()
            kind, _, own = there.split(maxsplit=2)
            found[place] = (number, set(options.split(",")), kind, own)
        return found


@dataclass(frozen=True)
class Watched:
    """A server and its sandboxes."""

    server: Process
    said: Mapping[str, Any]
    users: range
    """The uids on the machine that sandboxes can have."""
    sandboxes: tuple[tuple[Process, ...], ...]
    """The processes of each sandbox, PID 1 first."""
    outside: tuple[Process, ...]
    """Processes outside of the sandboxes that the server runs for them."""
    zygotes: tuple[Process, ...]
    """The processes of which sandboxes are forks."""
    name: str

    @property
    def inside(self) -> tuple[Process, ...]:
        return tuple(process for sandbox in self.sandboxes for process in sandbox)

    @cached_property
    def runner(self) -> Process:
        """The runner of the session that is inspected: code in it has changed its name to `name`."""
        (found,) = [process for process in self.inside if process.read("comm").strip() == self.name]
        return found

    def limited(self) -> bool:
        """Whether control groups limit the sandboxes."""
        return bool(self.said["probed"]["limits"] == "ok")


@contextmanager
def watched(packages: Path, *, user: str, network: str = "none") -> Iterator[Watched]:
    """Starts a server as `root`, as an ordinary user with `lent` uids, or as an ordinary user `without` uids."""
    name = f"seen{secrets.token_hex(4)}"
    with host_folder() as folder, socket.socket() as unused:
        plain_handlers(folder / "handlers")
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        profile = folder / "profile.toml"
        profile.write_text(_PROFILE.format(folder=folder, port=port, network=network))
        unused.close()
        argv = (str(_copied(folder)), str(profile), name, str(port))
        environment = {"HOME": str(folder), "SECRET_OF_THE_SERVER": SECRET}
        if user == "root":
            starting = _as_root(argv, folder, environment)
        else:
            os.chown(folder, ordinary.USER, ordinary.USER)
            starting = ordinary.started(packages, *argv, cwd=folder, env=environment, lent=user == "lent")
        with starting as process:
            assert process.stdout is not None and process.stdin is not None
            said = process.stdout.readline()
            assert said, "the program ended; its output is above"
            users = {"root": range(200_000, 265_536), "lent": ordinary.LENT}
            try:
                yield _look(
                    process.pid, json.loads(said), users.get(user, range(ordinary.USER, ordinary.USER + 1)), name
                )
            finally:
                process.stdin.close()
                process.wait(60)


def _copied(folder: Path) -> Path:
    """Copies the program to a place where any user can read it."""
    place = folder / "program.py"
    place.write_text(_PROGRAM.read_text())
    return place


@contextmanager
def _as_root(argv: tuple[str, ...], folder: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    settings = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": str(ROOT), **environment}
    with subprocess.Popen(
        [sys.executable, *argv], cwd=folder, env=settings, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process


def _look(pid: int, said: Mapping[str, Any], users: range, name: str) -> Watched:
    server = Process(pid)
    below = [server]
    for process in below:
        below += process.children()
    own = server.namespace("pid")
    inside = [process for process in below if process.namespace("pid") != own]
    spaces = dict.fromkeys(process.namespace("pid") for process in inside)
    found = [tuple(process for process in inside if process.namespace("pid") == space) for space in spaces]
    outside = [process for process in below if process.read("comm").strip() in ("bwrap", "slirp4netns")]
    starting = [process for process in outside if process not in inside and "/opt/zygote.py" in process.read("cmdline")]
    waiting = {zygote for one in starting for zygote in one.children()}
    sandboxes = tuple(processes for processes in found if processes[0] not in waiting)
    assert all(first.status("NSpid").split()[-1] == "1" for first, *_ in sandboxes)
    others = tuple(process for process in outside if process not in inside and process not in starting)
    return Watched(server, said, users, sandboxes, others, tuple(waiting), name)
