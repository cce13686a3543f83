"""Docker daemons for the tests, with their own sockets, data and containerd namespaces."""

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
"""The programs that it needs, and the Debian package of each."""

OPTIONAL = {"runsc": "runsc"}
"""Programs that only the tests of another runtime need."""

_BRIDGE, _ADDRESS = "sandbox-tests0", "172.31.249.1/24"
"""A separate bridge: a second daemon would change the usual docker0, and delete it when configured without a bridge."""

_NO_RULES = ("--iptables=false", "--ip-forward=false")

LONE = "lone-docker"
"""The name of a daemon that one test uses alone, and of the folder with its data."""

_USUAL = Path("/var/run/docker.sock")
"""Where the user's own daemon listens."""

# Systrap, because the other platforms need features of processor or kernel that virtual machines seldom have.
_RUNSC = {"runsc": {"path": "/usr/bin/runsc", "runtimeArgs": ["--platform=systrap", "--network=none"]}}


def daemon() -> Daemon:
    """The daemon that the tests share, not started."""
    # Two daemons would undo each other's firewall rules; without rules, containers reach only this machine.
    return _daemon("docker", () if not _listens(_USUAL) else _NO_RULES)


def spare(port: int, files: Certificates) -> Daemon:
    """A second daemon, which also listens with TLS on a loopback port; not started. A test may end it."""
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
    """Another daemon that listens only on its socket; not started."""
    return _daemon(LONE, _NO_RULES)


def prepare(daemon: Daemon, settings: Mapping[str, object] | None = None) -> None:
    """Writes the configuration and makes the bridge for the daemon, and removes what a killed daemon left."""
    runtimes = _RUNSC if shutil.which("runsc") else {}
    (CACHE / f"{daemon.name}.json").write_text(json.dumps({"runtimes": runtimes, **(settings or {})}))
    (RUNTIME / daemon.name).mkdir(exist_ok=True)
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
    """Removes the bridge, which the daemon leaves on this machine."""
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
        # A containerd that is ended while it is busy leaves its stacks there.
        {"TMPDIR": str(RUNTIME / name)},
    )


def _forget(name: str) -> None:
    """Ends a leftover containerd and removes pid files, which dockerd trusts even if a pid is dead or reused."""
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


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as peer:
        return peer.connect_ex(str(path)) == 0
