"""Checks whether bubblewrap can make sandboxes here, and if not, finds the reason and the fix."""

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import anyio.to_thread

from ...base.messages import Problem
from .. import bpf
from ..base import Check
from . import connecting, landlock
from .bubblewrap import system
from .launching import LauncherClient

INTERPRETER = "/usr/bin/python3"
"""The interpreter that runs PID 1 of every sandbox; it must be below /usr, which sandboxes see."""

_TRIAL_SECONDS = 10
_TRIAL_UID = 200_000
_UNPRIVILEGED = "proc/sys/kernel/unprivileged_userns_clone"
_APPARMOR = "proc/sys/kernel/apparmor_restrict_unprivileged_userns"
_PROFILE = "/etc/apparmor.d/bwrap-userns-restrict"
_MAXIMUM = "proc/sys/user/max_user_namespaces"
_ENABLE = "enable these controllers for the server's control group"
_CONTAINER_MARKS = (".dockerenv", "run/.containerenv")


def obstacle(bwrap: str) -> Problem | None:
    """The first thing that keeps sandboxes from starting, with the step that fixes it; None if they start."""
    return next((Problem(check.detail, check.fix) for check in _essentials(bwrap) if check.state == "missing"), None)


async def checks(bwrap: str, launcher: LauncherClient | None) -> list[Check]:
    """What sandboxes need, and each layer of isolation that is seen from outside of them, and whether it is on."""
    rows = [*await anyio.to_thread.run_sync(_essentials, bwrap), _landlock()]
    if launcher is not None:
        rows += [_uids(launcher), *_terminals(launcher)]
    return rows


def limits(launcher: LauncherClient | None) -> Check:
    """Whether limits hold for all processes of a sandbox together, and which limits do not."""
    if launcher is None:
        return Check("limits", "degraded", "the launcher did not start", "see the rows above")
    if not launcher.lacking:
        detail = f"memory, processes and CPUs are limited by control groups (cgroup v{launcher.cgroups})"
        return Check("limits", "ok", detail)
    step = launcher.remedy or _ENABLE
    if not launcher.cgroups:
        causes = ", ".join(dict.fromkeys(launcher.lacking.values()))
        detail = f"limits hold for single processes only, and not for memory that these share: {causes}"
    else:
        lacking = ", ".join(f"{limit}: {reason}" for limit, reason in launcher.lacking.items())
        detail = f"some limits do not hold for all processes together ({lacking})"
    return Check("limits", "degraded", detail, step)


def _essentials(bwrap: str) -> list[Check]:
    rows = [platform_check()]
    if rows[0].state == "ok":
        rows += [_program(bwrap), _interpreter()]
    if all(row.state == "ok" for row in rows) and (failed := _trial(bwrap)):
        rows.append(failed)
    return rows


def platform_check() -> Check:
    """Whether sandboxes can exist on this kind of machine."""
    machine = platform.machine()
    try:
        size = len(bpf.program(machine)) // 8
    except ValueError as error:
        return Check("platform", "missing", str(error), "use a container backend on this machine")
    return Check("platform", "ok", f"Linux {platform.release()} on {machine}, seccomp program of {size} instructions")


def _program(bwrap: str) -> Check:
    found = shutil.which(bwrap)
    if found is None:
        return Check("bubblewrap", "missing", f"{bwrap} is not on PATH", _install("bubblewrap"))
    version = subprocess.run(
        [found, "--version"], capture_output=True, text=True, timeout=_TRIAL_SECONDS, env={}, check=False
    )
    return Check("bubblewrap", "ok", f"{version.stdout.strip()} at {found}")


def _interpreter() -> Check:
    if not os.access(INTERPRETER, os.X_OK):
        return Check(
            "interpreter",
            "missing",
            f"{INTERPRETER}, which runs PID 1 of each sandbox, is missing",
            _install("python3"),
        )
    return Check("interpreter", "ok", f"{INTERPRETER} runs PID 1 of each sandbox")


def trial(bwrap: str) -> list[str]:
    """The command of a minimal sandbox; it succeeds if sandboxes can be made."""
    return [
        shutil.which(bwrap) or bwrap,
        "--unshare-all",
        # Without this option bubblewrap leaves a process behind that nothing waits for.
        "--as-pid-1",
        # Mounts the same folders as sandboxes do. To bind all of / could fail: other engines may unmount something
        # below it at any moment.
        *system(),
        "--proc",
        "/proc",
        "--",
        "/usr/bin/env",
    ]


def _trial(bwrap: str) -> Check | None:
    """Why no sandbox can be made; None if one was. Which layers sandboxes have is seen in one, not here."""
    unprivileged: dict[str, Any] = {}
    if os.geteuid() == 0:
        unprivileged = {"user": _TRIAL_UID, "group": _TRIAL_UID, "extra_groups": []}
    try:
        done = subprocess.run(
            trial(bwrap),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TRIAL_SECONDS,
            env={},
            check=False,
            # Ctrl-C would end bubblewrap in the middle, and this would wait for the process that it left behind.
            start_new_session=True,
            **unprivileged,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Check("namespaces", "missing", f"bubblewrap cannot be started: {error}", remedy())
    if done.returncode != 0:
        output = " ".join(done.stderr.split())[:300]
        return Check("namespaces", "missing", f"bubblewrap cannot make a sandbox: {output}", remedy())
    return None


def remedy(root: Path = Path("/")) -> str:
    """The fix for the most likely reason why sandboxes do not start, found in the system's settings below `root`."""
    if any((root / mark).exists() for mark in _CONTAINER_MARKS):
        return (
            "the server runs inside a container: start the container with --security-opt seccomp=unconfined, "
            "or run the server on the host"
        )
    if _read(root / _APPARMOR) == "1":
        return (
            "AppArmor forbids unprivileged user namespaces: "
            f"sudo apt-get install apparmor-profiles && sudo apparmor_parser -r {_PROFILE}"
        )
    if _read(root / _UNPRIVILEGED) == "0":
        return "sudo sysctl kernel.unprivileged_userns_clone=1"
    if _read(root / _MAXIMUM) == "0":
        return "sudo sysctl user.max_user_namespaces=15000"
    return "check whether `bwrap --unshare-all --ro-bind / / true` works for an ordinary user"


def open_network(slirp: str) -> list[Check]:
    """Whether sandboxes can have an open network."""
    found = shutil.which(slirp)
    if found is None:
        return [Check("slirp4netns", "missing", f"{slirp} is not on PATH", _install("slirp4netns"))]
    try:
        os.close(os.open(connecting.TUN, os.O_RDWR))
    except PermissionError:
        detail = f"{connecting.TUN} cannot be opened by uid {os.geteuid()}"
        return [Check("slirp4netns", "missing", detail, f"sudo chmod 0666 {connecting.TUN}")]
    except OSError as error:
        fix = "sudo modprobe tun (inside a container: start the container with --device /dev/net/tun)"
        return [Check("slirp4netns", "missing", f"{connecting.TUN}: {error.strerror}", fix)]
    return [Check("slirp4netns", "ok", f"{found} opens the network of each sandbox")]


def _landlock() -> Check:
    abi = landlock.version()
    if not abi:
        fix = "use Linux 5.13 or newer, with landlock among its security modules (boot parameter lsm)"
        return Check(
            "Landlock", "degraded", "not in this kernel; only the mounts limit which files code can reach", fix
        )
    return Check("Landlock", "ok", f"version {abi}: code can use only the folders that are meant for it")


def _uids(launcher: LauncherClient) -> Check:
    if launcher.uids:
        lent = f", one of {len(launcher.uids)} that /etc/subuid lends to uid {os.geteuid()}" if os.geteuid() else ""
        return Check("user of the machine", "ok", f"each sandbox has its own unprivileged uid{lent}")
    cause, step = launcher.shared
    shared = f"shared uid: the kernel counts the sandboxes and the server together, as uid {os.geteuid()}: {cause}"
    return Check("user of the machine", "degraded", shared, step)


def _terminals(launcher: LauncherClient) -> list[Check]:
    if launcher.own_terminals:
        return []
    fix = "start the server as root, or allow its user to make user namespaces"
    return [Check("pseudo-terminals", "degraded", "one sandbox can use up all pseudo-terminals of the machine", fix)]


def _read(setting: Path) -> str | None:
    try:
        return setting.read_text().strip()
    except OSError:
        return None


def _install(package: str) -> str:
    for manager, command in (
        ("apt-get", "apt-get install"),
        ("dnf", "dnf install"),
        ("pacman", "pacman -S"),
        ("apk", "apk add"),
    ):
        if shutil.which(manager):
            return f"sudo {command} {package}"
    return f"install the package {package}"
