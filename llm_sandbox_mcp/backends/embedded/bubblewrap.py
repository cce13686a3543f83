"""The command line of one sandbox: pure functions, so that all mounts are in one place and can be tested alone."""

import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...base.policy import Policy
from ..layout import ALIAS, ALIAS_FOLDER, DATA, ENVIRONMENTS, HANDLERS, TOOLS, WORKDIR
from .becoming import CONTROL_FD, SECCOMP_FD, USERNS_FD
from .etc import RESOLVING
from .landlock import rules
from .zygote import FOLDERS, MASKED, MASKED_FOLDERS, PLACES, SHM, UID

_ROOT_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_PARENTS = ("/opt", ENVIRONMENTS, TOOLS, ALIAS_FOLDER)
_NOFILE = 4096
_OWN_DISK = 16 << 20


@dataclass(frozen=True, slots=True)
class Mounts:
    """Folders of the host that every sandbox sees, read-only."""

    etc: Path
    handlers: Path
    environments: Mapping[str, Path]
    tools: Mapping[str, Path]
    """By the names that they have in the sandbox."""
    init: Path
    zygote: Path
    """The scripts of PID 1 and of zygotes."""
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
        "--unshare-user",
        *("--uid", str(UID), "--gid", str(UID)),
        *_shell(mounts),
        *(_resolving(mounts.resolving) if policy.network.mode == "open" else ()),
        *_proc(mounts.empty),
        *(("--dev-bind", str(mounts.terminals), "/dev/pts") if mounts.terminals else ()),
        *_writable(policy.disk),
        *_views(mounts.views, policy.disk),
        *("--remount-ro", "/", "--chdir", "/"),
        *(interpreter, "-I", "-S", "/opt/init.py", str(CONTROL_FD), _single_limits(policy, lacking)),
        rules(landlock, [place for place, folder in mounts.views.items() if folder is None]),
    ]


def zygote(bwrap: str, mounts: Mounts, argv: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The argv that starts the process of which sandboxes are forks, as `argv` with exactly this environment.

    It enters the user namespace that has the uids of all sandboxes. What it has in place of a sandbox's own folders is
    small, since each fork has others. Its /proc shows everything, without which the kernel would not let forks mount
    theirs.
    """
    return [
        bwrap,
        *("--userns", str(USERNS_FD)),
        *_shell(mounts),
        *("--ro-bind", str(mounts.zygote), "/opt/zygote.py"),
        *("--proc", "/proc"),
        *_writable(_OWN_DISK),
        *("--remount-ro", "/", "--chdir", "/"),
        # bubblewrap itself adds a variable.
        *("/usr/bin/env", "-i", *(f"{name}={value}" for name, value in environment.items()), *argv),
    ]


def about_fork(policy: Policy, *, lacking: Collection[str], landlock: int) -> dict[str, object]:
    """What a fork of a zygote is told of its sandbox: the same limits and rules as in `command`."""
    return {"disk": policy.disk, "single": _single_limits(policy, lacking), "rules": rules(landlock)}


def _shell(mounts: Mounts) -> Iterator[str]:
    """What is the same for every sandbox and every zygote, but for the user and the folders of its own."""
    yield from ("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
    yield from ("--hostname", "sandbox", "--cap-drop", "ALL", "--clearenv")
    yield from ("--die-with-parent", "--new-session", "--as-pid-1", "--seccomp", str(SECCOMP_FD))
    yield from system()
    # Otherwise only their owner could look into them, who is not the user of a fork.
    for folder in _PARENTS:
        yield from ("--perms", "0755", "--dir", folder)
    yield from ("--ro-bind", str(mounts.etc), "/etc")
    yield from ("--ro-bind", str(mounts.handlers), HANDLERS)
    yield from _named(ENVIRONMENTS, mounts.environments)
    yield from _named(TOOLS, mounts.tools)
    yield from ("--ro-bind", str(mounts.init), "/opt/init.py")
    yield from ("--dev", "/dev", *_tmpfs("/dev/shm", SHM, "1777"), "--remount-ro", "/dev")


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
    for name in MASKED:
        if os.path.exists(f"/proc/{name}"):
            yield from ("--ro-bind", "/dev/null", f"/proc/{name}")
    for name in MASKED_FOLDERS:
        if os.path.isdir(f"/proc/{name}"):
            yield from ("--ro-bind", str(empty), f"/proc/{name}")


def _writable(size: int) -> Iterator[str]:
    for place, mode in PLACES.items():
        yield from _tmpfs(place, size, mode)
    for folder in FOLDERS:
        yield from ("--dir", folder)
    yield from ("--symlink", WORKDIR, ALIAS)


def _tmpfs(path: str, size: int, mode: str) -> tuple[str, ...]:
    return ("--perms", mode, "--size", str(size), "--tmpfs", path)


def _single_limits(policy: Policy, lacking: Collection[str]) -> str:
    """The limits that PID 1 sets for itself and all that it starts; `lacking` are those without a control group."""
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
