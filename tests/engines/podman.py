"""Podman's service, with images and containers of its own."""

from .daemon import Daemon
from .places import CACHE, RUNTIME

PROGRAMS = {"podman": "podman", "runc": "runc", "catatonit": "catatonit", "iptables": "iptables"}
"""What it needs, and the Debian package of each."""

OPTIONAL = {"newuidmap": "uidmap"}
"""What only the service of an ordinary user needs."""

LONE = "lone-podman"
"""Of a service that shares nothing with the others, and the folder of its data."""

# crun refuses a machine with both versions of cgroups; without systemd there is no other manager; limits above the
# service's own cannot be set in a virtual machine whose root may not raise them. Each process that was started in a
# container leaves two of Podman's own behind it, by default for five minutes, which come to hundreds while tests run.
CONFIGURATION = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=2048:2048"]

[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
exit_command_delay = 5
init_path = "/usr/bin/catatonit"
"""
_NETWORKS = f"""
[network]
network_config_dir = "{CACHE / "podman-networks"}"
"""


def daemon() -> Daemon:
    """The service that tests share, not started."""
    return _service("podman")


def spare() -> Daemon:
    """Another service on the same images and containers, not started. A test may end it."""
    return _service("spare-podman")


def lone() -> Daemon:
    """One with a place of its own for images and containers, not started."""
    return _service(LONE, LONE)


def prepare() -> None:
    """Writes what the service reads."""
    (CACHE / "containers.conf").write_text(CONFIGURATION + _NETWORKS)
    (CACHE / "registries.conf").write_text("")


def _service(name: str, store: str = "podman") -> Daemon:
    command = [
        "podman",
        f"--root={CACHE / store}",
        f"--runroot={RUNTIME / store}",
        f"--tmpdir={RUNTIME / store}-state",
        "--storage-driver=overlay",
        "system",
        "service",
        "--time=0",
        f"unix://{RUNTIME / name}.sock",
    ]
    files = {
        "CONTAINERS_CONF": str(CACHE / "containers.conf"),
        "CONTAINERS_REGISTRIES_CONF": str(CACHE / "registries.conf"),
    }
    return Daemon(name, tuple(command), files)
