"""What a process just forked from the launcher does until it is bubblewrap, or what opens a sandbox's network."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from .. import libc
from . import cgroup_files, connecting, terminals, uids
from .forked import to_the_end

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from .cgroup import Group

CONTROL_FD = 3
SECCOMP_FD = 4
"""The two descriptors that bubblewrap finds open, beside its standard streams."""

SECCOMP = "seccomp.bpf"
"""The program that filters system calls, in the folder that is shown as `stage`."""


@dataclass(slots=True)
class Entry:
    """How processes become those of sandboxes here, as the launcher found at its start."""

    stage: str = ""
    """The folder that is shown as `stage`."""
    shares: Mapping[str, int] | None = None
    """What bounds the namespace of each, where they are not started by root."""
    own_devices: bool = False
    """Whether what opens a network gets a /dev of its own."""
    own_terminals: bool = False


def become_bubblewrap(
    argv: list[str], uid: int | None, entry: Entry, control: int, log: int, group: Group | None
) -> None:
    """Joins the group, drops all privileges, and becomes bubblewrap; never returns."""
    with to_the_end("cannot start"):
        os.setpgid(0, 0)
        _leave_launcher(log)
        if entry.shares is None:  # as long as it is root
            _take_terminals(entry)
        _give_up_privileges(uid, group)
        if entry.shares is not None:
            uids.bound(entry.shares)
            _take_terminals(entry)
        control = os.dup(control)
        seccomp = os.open(os.path.join(entry.stage, SECCOMP), os.O_RDONLY)
        os.dup2(seccomp, SECCOMP_FD)
        os.dup2(control, CONTROL_FD)
        os.closerange(max(CONTROL_FD, SECCOMP_FD) + 1, os.sysconf("SC_OPEN_MAX"))
        os.execve(argv[0], argv, {})


def become_network(
    program: str, uid: int | None, entry: Entry, log: int, group: Group | None, *, namespace: int, ready: int
) -> None:
    """Joins the sandbox's group and user, and becomes the program that opens its network; never returns."""
    with to_the_end("cannot open its network"):
        _leave_launcher(log)
        if entry.own_devices:
            connecting.own_devices()
        _give_up_privileges(uid, group)
        connecting.keep(namespace, ready)
        connecting.enter()
        argv = connecting.command(program)
        os.execve(argv[0], argv, {})


def _leave_launcher(log: int) -> None:
    """Takes from this process what is the launcher's: its signals and its streams."""
    # Python ignores SIGPIPE and handles the others; what is started must find the defaults.
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)


def _take_terminals(entry: Entry) -> None:
    if entry.own_terminals:
        terminals.own(entry.stage)


def _give_up_privileges(uid: int | None, group: Group | None) -> None:
    """Makes this process one of a sandbox: in its group, of its user, and gone with the launcher."""
    cgroup_files.join(group.join_paths if group else ())
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    if 0 in os.getresuid() + os.getresgid():
        raise PermissionError("refusing to start a sandbox with the rights of root")
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    # Setting the uid cleared it, and bubblewrap sets its own only after its start.
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
