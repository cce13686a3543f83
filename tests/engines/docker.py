"""Docker daemons of the tests' own: their sockets, data and containerd namespaces are no one else's."""

import json
import shutil
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from .certificates import Certificates
from .daemon import Daemon, Unusable, end
from .places import CACHE, RUNTIME

PROGRAMS = {
    "dockerd": "docker.io",
    "containerd": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "ip": "iproute2",
}
"""What it needs, and the Debian package of each."""

OPTIONAL = {"runsc": "runsc"}
"""What only tests of another runtime need."""

_BRIDGE, _ADDRESS = "sandbox-tests0", "172.31.249.1/24"
"""Our own bridge: a second daemon changes the usual docker0, and deletes it when told to use none."""

_NO_RULES = ("--iptables=false", "--ip-forward=false")

LONE = "lone-docker"
"""The name of a daemon that one test has for itself, and of the folder of its data."""

_USUAL = Path("/var/run/docker.sock")
"""Where a person's own daemon listens."""

# Systrap, as the other platforms need a processor's or a kernel's help that virtual machines seldom have.
_RUNSC = {"runsc": {"path": "/usr/bin/runsc", "runtimeArgs": ["--platform=systrap", "--network=none"]}}


def daemon() -> Daemon:
    """The daemon that tests share, not started."""
    # Two daemons would undo each other's firewall rules; without them containers reach this machine only.
    return _daemon("docker", () if not _someone_listens(_USUAL) else _NO_RULES)


def spare(port: int, files: Certificates) -> Daemon:
    """Another beside it, reached over TLS on a port of the loopback too; not started. A test may end it."""
    return _daemon(
        "spare-docker",
        (
            *_NO_RULES,
            f"--host=tcp://127.0.0.1:{port}",
            "--tlsverify",
            f"--tlscacert={files.ca}",
            f"--tlscert={files.cert}",
            f"--tlskey={files.key}",
        ),
    )


def lone() -> Daemon:
    """Another on its socket alone; not started."""
    return _daemon(LONE, _NO_RULES)


def prepare(daemon: Daemon, settings: Mapping[str, object] | None = None) -> None:
    """Makes what the daemon finds when it starts, and removes what a killed one left."""
    runtimes = _RUNSC if shutil.which("runsc") else {}
    (CACHE / f"{daemon.name}.json").write_text(json.dumps({"runtimes": runtimes, **(settings or {})}))
    if daemon.pid() is None:
        _forget(daemon.name)

    if not Path("/sys/class/net", _BRIDGE).exists():
        for words in (
            f"link add {_BRIDGE} type bridge",
            f"addr add {_ADDRESS} dev {_BRIDGE}",
            f"link set {_BRIDGE} up",
        ):
            _ip(words)


def tidy() -> None:
    """Removes what would be left on this machine after the daemon."""
    if Path("/sys/class/net", _BRIDGE).exists():
        _ip(f"link delete {_BRIDGE}")


def _daemon(name: str, options: tuple[str, ...]) -> Daemon:
    space = f"llm-sandbox-mcp-tests-{name}"
    return Daemon(
        name,
        (
            "dockerd",
            f"--host=unix://{RUNTIME / name}.sock",
            f"--config-file={CACHE / name}.json",
            f"--data-root={CACHE / name}",
            f"--exec-root={RUNTIME / name}",
            f"--pidfile={RUNTIME / name}d.pid",
            f"--containerd-namespace={space}",
            f"--containerd-plugins-namespace={space}-plugins",
            "--group=root",
            f"--bridge={_BRIDGE}",
            *options,
        ),
    )


def _forget(name: str) -> None:
    """Ends and removes what would be in the way of the next dockerd, which goes by noted pids, be they dead or others'."""
    (RUNTIME / f"{name}d.pid").unlink(missing_ok=True)
    noted = RUNTIME / name / "containerd/containerd.pid"
    with suppress(OSError, ValueError):
        pid = int(noted.read_text())
        if str(RUNTIME / name) in Path(f"/proc/{pid}/cmdline").read_text():
            end(pid, 5.0)
    noted.unlink(missing_ok=True)


def _ip(words: str) -> None:
    done = subprocess.run(["ip", *words.split()], capture_output=True, text=True)
    if done.returncode:
        raise Unusable(f"ip {words}: {done.stderr.strip()}")


def _someone_listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as peer:
        return peer.connect_ex(str(path)) == 0
