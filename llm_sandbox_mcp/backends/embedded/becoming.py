"""What a process forked from the launcher does before it becomes bubblewrap or the program that opens a network."""

from __future__ import annotations

import fcntl
import os
import signal
from dataclasses import dataclass, field

from .. import libc
from . import cgroup_files, connecting, mapper, terminals, uids
from .forked import to_the_end

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from .cgroup import Group

CONTROL_FD = 3
SECCOMP_FD = 4
USERNS_FD = 5
"""The descriptors that bubblewrap finds open, next to its standard streams; the third only for a zygote."""

SECCOMP, ZYGOTE_SECCOMP = "seccomp.bpf", "zygote.bpf"
"""The system call filters of sandboxes and of zygotes, files in the folder that is shown as `stage`."""


@dataclass(slots=True)
class Entry:
    """How a process enters a sandbox on this machine; the launcher determines this when it starts."""

    stage: str = ""
    """The folder that is shown as `stage`."""
    shares: Mapping[str, int] | None = None
    """The limits of each sandbox's user namespace; None if root starts the sandboxes."""
    own_devices: bool = False
    """Whether the program that opens a network gets its own /dev."""
    own_terminals: bool = False
    """Whether each sandbox gets its own pseudo-terminals."""
    launcher: int = field(default_factory=os.getpid)


def become_bubblewrap(
    argv: list[str], uid: int | None, entry: Entry, control: int, log: int, group: Group | None
) -> None:
    """Joins the group, drops all privileges, and becomes bubblewrap; never returns."""
    with to_the_end("cannot start"):
        os.setpgid(0, 0)
        _leave_launcher(log)
        if entry.shares is None:  # needs root, so before it gives up its privileges
            _take_terminals(entry)
        _give_up_privileges(uid, group, entry.launcher)
        if entry.shares is not None:
            uids.bound(entry.shares)
            _take_terminals(entry)
            _end_with(entry.launcher)  # again, since the namespace has cleared it
        control = os.dup(control)
        seccomp = os.open(os.path.join(entry.stage, SECCOMP), os.O_RDONLY)
        os.dup2(seccomp, SECCOMP_FD)
        os.dup2(control, CONTROL_FD)
        os.closerange(max(CONTROL_FD, SECCOMP_FD) + 1, os.sysconf("SC_OPEN_MAX"))
        os.execve(argv[0], argv, {})


def become_zygote(argv: list[str], uid: int | None, entry: Entry, control: int, log: int, namespace: int) -> None:
    """Drops all privileges and becomes the bubblewrap of a zygote; never returns.

    `namespace` is the user namespace that it enters. Its standard streams are pipes, as those of the interpreters are
    that are forked from it.
    """
    with to_the_end("cannot start"):
        os.setpgid(0, 0)
        _leave_launcher(log)
        ended, _ = os.pipe()
        os.dup2(ended, 0)
        mapper.unbind()
        _give_up_privileges(uid, None, entry.launcher)
        seccomp = os.open(os.path.join(entry.stage, ZYGOTE_SECCOMP), os.O_RDONLY)
        kept = {CONTROL_FD: control, SECCOMP_FD: seccomp, USERNS_FD: namespace}
        copies = {target: fcntl.fcntl(one, fcntl.F_DUPFD, USERNS_FD + 1) for target, one in kept.items()}
        for target, copy in copies.items():
            os.dup2(copy, target)
        os.closerange(USERNS_FD + 1, os.sysconf("SC_OPEN_MAX"))
        os.execve(argv[0], argv, {})


def become_network(
    program: str, uid: int | None, entry: Entry, log: int, group: Group | None, *, namespace: int, ready: int
) -> None:
    """Joins the sandbox's group, takes its user, and becomes the program that opens its network; never returns."""
    with to_the_end("cannot open its network"):
        _leave_launcher(log)
        if entry.own_devices:
            connecting.own_devices()
        _give_up_privileges(uid, group, entry.launcher)
        connecting.keep(namespace, ready)
        connecting.enter()
        argv = connecting.command(program)
        os.execve(argv[0], argv, {})


def _leave_launcher(log: int) -> None:
    """Undoes what this process has from the launcher: its signal handling and its streams."""
    # The launcher, as a Python process, ignores SIGPIPE and handles the others; the program must find the defaults.
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)


def _take_terminals(entry: Entry) -> None:
    if entry.own_terminals:
        terminals.own(entry.stage)


def _give_up_privileges(uid: int | None, group: Group | None, launcher: int) -> None:
    """Makes this process part of a sandbox: in its group, with its user, and killed when the launcher ends."""
    cgroup_files.join(group.join_paths if group else ())
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    if 0 in os.getresuid() + os.getresgid():
        raise PermissionError("refusing to start a sandbox with the privileges of root")
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    # Set here because setting the uid clears it, and bubblewrap sets its own only after its start.
    _end_with(launcher)


def _end_with(launcher: int) -> None:
    """Lets the kernel kill this process when the launcher ends, if it has not ended yet."""
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher:
        raise ProcessLookupError("the launcher has ended")
