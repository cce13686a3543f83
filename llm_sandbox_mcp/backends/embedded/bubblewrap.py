"""The command line of one sandbox: pure functions, so that all mounts are in one place and can be tested alone."""

import math
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...base.policy import Policy
from ..layout import ALIAS, DATA, ENVIRONMENTS, FIGURES, HANDLERS, HOME, LIBRARIES, TOOLS, WORKDIR
from .becoming import CONTROL_FD, SECCOMP_FD
from .etc import RESOLVING
from .landlock import rules

UID = 1000
"""The uid inside the sandbox. Outside it is the sandbox's own uid, or the server's if the server has none to assign."""

_SHM = 64 << 20
_MASKED = (
    *("kallsyms", "kcore", "interrupts", "cmdline", "config.gz", "keys", "key-users", "sched_debug", "timer_list"),
    *("iomem", "ioports", "modules", "locks", "softirqs"),
)
_MASKED_FOLDERS = ("acpi", "asound", "bus", "driver", "fs", "irq", "pressure", "scsi")
"""Devices, disks and interrupts of the machine; anyone may write to files in `pressure` to be woken by the kernel."""
_ROOT_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_NOFILE = 4096


@dataclass(frozen=True, slots=True)
class Mounts:
    """Folders of the host that every sandbox sees, read-only."""

    etc: Path
    handlers: Path
    environments: Mapping[str, Path]
    tools: Mapping[str, Path]
    """By the names that they have in the sandbox."""
    init: Path
    resolving: Path
    """Files that replace others in /etc if names are resolved over an open network."""
    empty: Path
    """An empty folder."""
    terminals: Path | None
    """The sandbox's own pseudo-terminals; None if it uses those of the machine."""
    views: Mapping[str, Path | None]
    """For each place of a view: the folder to mount there; None if it is to be copied."""


def command(
    bwrap: str, mounts: Mounts, policy: Policy, *, interpreter: str, lacking: Collection[str], landlock: int
) -> list[str]:
    """The argv that starts one sandbox.

    `lacking` are the limits that no control group enforces. `landlock` is the Landlock ABI of the kernel, or 0.
    """
    return [
        bwrap,
        *("--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
        *("--uid", str(UID), "--gid", str(UID), "--hostname", "sandbox", "--cap-drop", "ALL", "--clearenv"),
        *("--die-with-parent", "--new-session", "--as-pid-1", "--seccomp", str(SECCOMP_FD)),
        *system(),
        *("--ro-bind", str(mounts.etc), "/etc"),
        *(_resolving(mounts.resolving) if policy.network.mode == "open" else ()),
        *("--ro-bind", str(mounts.handlers), HANDLERS),
        *("--dir", ENVIRONMENTS, "--dir", TOOLS),
        *_named(ENVIRONMENTS, mounts.environments),
        *_named(TOOLS, mounts.tools),
        *("--ro-bind", str(mounts.init), "/opt/init.py"),
        *_proc(mounts.empty),
        *("--dev", "/dev", *_tmpfs("/dev/shm", _SHM, "1777")),
        *(("--dev-bind", str(mounts.terminals), "/dev/pts") if mounts.terminals else ()),
        *("--remount-ro", "/dev"),
        # World-readable: the server reads these folders from outside, and may not be root there.
        *_tmpfs(WORKDIR, policy.disk, "0755"),
        *("--symlink", WORKDIR, ALIAS),
        *_tmpfs(HOME, policy.disk, "0755"),
        *("--dir", FIGURES, "--dir", LIBRARIES),
        *_tmpfs("/tmp", policy.disk, "1777"),
        *_views(mounts.views, policy.disk),
        *("--remount-ro", "/", "--chdir", "/"),
        *(interpreter, "-I", "-S", "/opt/init.py", str(CONTROL_FD), _limits(policy, lacking)),
        rules(landlock, [place for place, folder in mounts.views.items() if folder is None]),
    ]


def system() -> Iterator[str]:
    """Arguments that mount the system's programs, and nothing else of this machine."""
    yield from ("--ro-bind", "/usr", "/usr")
    for path in _ROOT_LINKS:
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), path)
        elif os.path.isdir(path):
            yield from ("--ro-bind", path, path)


def _named(place: str, folders: Mapping[str, Path]) -> Iterator[str]:
    for name, folder in folders.items():
        yield from ("--ro-bind", str(folder), f"{place}/{name}")


def _resolving(folder: Path) -> Iterator[str]:
    for name in RESOLVING:
        yield from ("--ro-bind", str(folder / name), f"/etc/{name}")


def _views(views: Mapping[str, Path | None], size: int) -> Iterator[str]:
    if views:
        yield from _tmpfs(DATA, size, "0755")
    for place, folder in views.items():
        yield from ("--dir", place) if folder is None else ("--ro-bind", str(folder), place)


def _proc(empty: Path) -> Iterator[str]:
    # /proc shows the processes of the new namespace, but these other files still reveal facts about the host.
    yield from ("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys")
    for name in _MASKED:
        if os.path.exists(f"/proc/{name}"):
            yield from ("--ro-bind", "/dev/null", f"/proc/{name}")
    for name in _MASKED_FOLDERS:
        if os.path.isdir(f"/proc/{name}"):
            yield from ("--ro-bind", str(empty), f"/proc/{name}")


def _tmpfs(path: str, size: int, mode: str) -> tuple[str, ...]:
    return ("--perms", mode, "--size", str(size), "--tmpfs", path)


def _limits(policy: Policy, lacking: Collection[str]) -> str:
    # Not 0: if core_pattern starts a program, only the limit 1 keeps the kernel from starting it (fs/coredump.c).
    limits = {"CORE": 1, "NOFILE": _NOFILE, "FSIZE": policy.largest_file, "MSGQUEUE": 1 << 20}
    # Per process and per user namespace: this enforces less than a control group would, and `doctor` reports it.
    single = {
        "memory": ("DATA", policy.memory),
        "pids": ("NPROC", policy.pids),
        "cpu_time": ("CPU", math.ceil(policy.cpu_time)),
    }
    limits |= dict(single[name] for name in single if name in lacking)
    return ",".join(f"{name}={value}" for name, value in limits.items())
