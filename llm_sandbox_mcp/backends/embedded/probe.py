"""Whether bubblewrap can make sandboxes here, and if not, why, and what fixes it."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio.to_thread

from .. import system_calls
from ..base import Check, halves
from . import connecting, landlock, terminals
from .bubblewrap import system
from .launching import LauncherClient

INTERPRETER = "/usr/bin/python3"
"""Runs PID 1 of every sandbox; it must be below /usr, which sandboxes see."""

_TRIAL_SECONDS = 10
_TRIAL_UID = 200_000
_UNPRIVILEGED = "proc/sys/kernel/unprivileged_userns_clone"
_APPARMOR = "proc/sys/kernel/apparmor_restrict_unprivileged_userns"
_PROFILE = "/etc/apparmor.d/bwrap-userns-restrict"
_MAXIMUM = "proc/sys/user/max_user_namespaces"
_HAND_ON = "have the machine hand these controllers on to the server's control group"
_CONTAINER_MARKS = (".dockerenv", "run/.containerenv")


def obstacle(bwrap: str) -> str | None:
    """The first thing that keeps sandboxes from starting, with the step that fixes it; nothing where they start."""
    return next((f"{check.detail}; {check.fix}" for check in _essentials(bwrap) if check.state == "missing"), None)


async def checks(bwrap: str, launcher: LauncherClient | None) -> list[Check]:
    """Each layer of isolation, and whether it is on."""
    rows = [*await anyio.to_thread.run_sync(_essentials, bwrap), _landlock()]
    if launcher is not None:
        rows += [_uids(launcher), _terminals(launcher)]
    return rows


def limits(launcher: LauncherClient | None) -> Check:
    """Whether limits hold for all processes of a sandbox together, and which do not."""
    if launcher is None:
        return Check("limits", "degraded", "the launcher did not start", "see the rows above")
    if not launcher.lacking:
        said = f"memory, processes and processors, by control groups of version {launcher.cgroups}"
        return Check("limits", "ok", said)
    causes = {halves(reason)[0]: halves(reason)[1] for reason in launcher.lacking.values()}
    step = next(filter(None, causes.values()), _HAND_ON)
    if not launcher.cgroups:
        said = f"they hold for single processes only, and for no memory that these share: {', '.join(causes)}"
    else:
        lacking = ", ".join(f"{limit}: {halves(reason)[0]}" for limit, reason in launcher.lacking.items())
        said = f"some do not hold for all processes together ({lacking})"
    return Check("limits", "degraded", said, step)


def _essentials(bwrap: str) -> list[Check]:
    rows = [platform_check()]
    if rows[0].state == "ok":
        rows += [_program(bwrap), _interpreter()]
    if all(row.state == "ok" for row in rows):
        rows.append(_trial(bwrap))
    return rows


def platform_check(system: str = sys.platform) -> Check:
    """Whether this kind of system has what sandboxes are made of."""
    if system != "linux":
        return Check(
            "platform",
            "missing",
            f"bubblewrap needs Linux, this is {system}",
            "run the server in a Linux virtual machine",
        )
    machine = platform.machine()
    try:
        size = len(system_calls.program(machine)) // 8
    except ValueError as error:
        return Check("platform", "missing", str(error), "run on x86_64 or aarch64")
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
            "interpreter", "missing", f"{INTERPRETER} is missing; it runs PID 1 of each sandbox", _install("python3")
        )
    return Check("interpreter", "ok", f"{INTERPRETER} runs PID 1 of each sandbox")


def trial(bwrap: str) -> list[str]:
    """The command of the smallest sandbox, which succeeds where one can be made."""
    return [
        shutil.which(bwrap) or bwrap,
        "--unshare-all",
        # Without it bubblewrap leaves a process behind that nobody waits for.
        "--as-pid-1",
        # As sandboxes do: below the whole root other engines unmount things at any moment, and it would fail.
        *system(),
        "--proc",
        "/proc",
        "--",
        "/usr/bin/env",
    ]


def _trial(bwrap: str) -> Check:
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
            **unprivileged,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Check("namespaces", "missing", f"bubblewrap cannot be started: {error}", remedy())
    if done.returncode != 0:
        said = " ".join(done.stderr.split())[:300]
        return Check("namespaces", "missing", f"bubblewrap cannot make a sandbox: {said}", remedy())
    return Check("namespaces", "ok", "user, mount, process, network, ipc, host name and control group")


def remedy(root: Path = Path("/")) -> str:
    """The likeliest cause why sandboxes do not start, read from the switches of the system below a root."""
    if any((root / mark).exists() for mark in _CONTAINER_MARKS):
        return "inside a container: start it with --security-opt seccomp=unconfined, or run the server on the host"
    if _reads(root / _APPARMOR) == "1":
        return f"AppArmor forbids it: sudo apt-get install apparmor-profiles && sudo apparmor_parser -r {_PROFILE}"
    if _reads(root / _UNPRIVILEGED) == "0":
        return "sudo sysctl kernel.unprivileged_userns_clone=1"
    if _reads(root / _MAXIMUM) == "0":
        return "sudo sysctl user.max_user_namespaces=15000"
    return "see whether `bwrap --unshare-all --ro-bind / / true` works for an ordinary user"


def open_network(slirp: str) -> list[Check]:
    """Whether sandboxes can be given an open network."""
    found = shutil.which(slirp)
    if found is None:
        return [Check("slirp4netns", "missing", f"{slirp} is not on PATH", _install("slirp4netns"))]
    try:
        os.close(os.open(connecting.TUN, os.O_RDWR))
    except PermissionError:
        detail = f"{connecting.TUN} cannot be opened by uid {os.geteuid()}"
        return [Check("slirp4netns", "missing", detail, f"sudo chmod 0666 {connecting.TUN}")]
    except OSError as error:
        fix = "sudo modprobe tun (a container is started with --device /dev/net/tun)"
        return [Check("slirp4netns", "missing", f"{connecting.TUN}: {error.strerror}", fix)]
    return [Check("slirp4netns", "ok", f"{found} opens the network of each sandbox")]


def _landlock() -> Check:
    abi = landlock.version()
    if not abi:
        fix = "a kernel since 5.13 with landlock among its security modules (the boot parameter lsm)"
        return Check("Landlock", "degraded", "not in this kernel; the mounts alone say what code can reach", fix)
    return Check("Landlock", "ok", f"version {abi}: only the folders that are meant for code, as the mounts say too")


def _uids(launcher: LauncherClient) -> Check:
    if launcher.uids:
        lent = f", of {len(launcher.uids)} that /etc/subuid lends uid {os.geteuid()}" if os.geteuid() else ""
        return Check("user of the machine", "ok", f"each sandbox has an unprivileged uid of its own{lent}")
    cause, _, step = launcher.shared.partition("; ")
    shared = f"shared uid: the kernel counts sandboxes with the server, as those of uid {os.geteuid()}: {cause}"
    return Check("user of the machine", "degraded", shared, step)


def _terminals(launcher: LauncherClient) -> Check:
    if launcher.own_terminals:
        return Check("pseudo-terminals", "ok", f"each sandbox has {terminals.MOST} pseudo-terminals of its own")
    fix = "start the server as root, or let its user make user namespaces"
    return Check("pseudo-terminals", "degraded", "one sandbox can take all pseudo-terminals that the machine has", fix)


def _reads(switch: Path) -> str | None:
    try:
        return switch.read_text().strip()
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
