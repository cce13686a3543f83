"""Podman's service, with its own images and containers."""

from .daemon import Daemon
from .places import CACHE, RUNTIME

PROGRAMS = {"podman": "podman", "runc": "runc", "catatonit": "catatonit", "iptables": "iptables"}
"""The programs that it needs, and the Debian package of each."""

OPTIONAL = {"newuidmap": "uidmap"}
"""Programs that only the service of an ordinary user needs."""

LONE = "lone-podman"
"""The name of a service that shares nothing with the others, and of the folder with its data."""

# runc: crun refuses a machine with both versions of cgroups. cgroupfs: the other manager needs systemd. ulimits: in
# some virtual machines root cannot set limits above those of the service. exit_command_delay: each process that was
# started in a container leaves two of Podman's own, by default for five minutes, which become hundreds while tests run.
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
    """The service that the tests share, not started."""
    return _service("podman")


def spare() -> Daemon:
    """Another service on the same images and containers, not started. A test may end it."""
    return _service("spare-podman")


def lone() -> Daemon:
    """A service with its own folder for images and containers, not started."""
    return _service(LONE, LONE)


def prepare() -> None:
    """Writes the configuration files of the service."""
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
