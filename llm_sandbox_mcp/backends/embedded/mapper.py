"""A uid for each fork of a zygote.

A zygote's forks are in user namespaces below its own. For each of these to have another uid, zygotes are in a user
namespace with all uids of sandboxes. Only a process in that namespace can give a fork its uid: the mapper, which does
nothing else.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket

from .. import libc
from . import zygote
from .forked import to_the_end

_FIRST = 2000
"""The first uid of sandboxes in the mapper's namespace; the zygotes themselves have `zygote.UID`."""
_COUNTED = ("NPROC", "SIGPENDING", "MSGQUEUE", "MEMLOCK")
"""Limits (RLIMIT_*) on what a user may have in total. Those in force when a user namespace is made bound what all users
in it have together: so that sandboxes take nothing from each other, only each fork itself gets them, where possible."""
_PACKET = 64


class Mapper:
    """A user namespace with the uids of all sandboxes, and the process in it that gives them out."""

    def __init__(self, uids: range) -> None:
        """The first of the uids is that of all zygotes. OSError or PermissionError if that is not allowed here."""
        self._first = uids[0]
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ready, entered = os.pipe()
        self.pid = pid = os.fork()
        if pid == 0:
            with to_the_end(quiet=True):
                _map(uids[0], theirs.fileno(), entered)
        theirs.close()
        os.close(entered)
        try:
            if not os.read(ready, 1):
                raise PermissionError("no user namespace for zygotes can be made")
            self.namespace = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
            entries = f"{zygote.UID} {self._first} 1\n{_FIRST} {self._first + 1} {len(uids) - 1}\n"
            for file in ("uid_map", "gid_map"):
                _write(f"/proc/{pid}/{file}", entries)
        finally:
            os.close(ready)

    def map(self, process: int, uid: int, mapping: int) -> None:
        """Gives a fork its uid; it learns that from the pipe `mapping`."""
        packet = f"{process} {_FIRST + uid - self._first - 1}".encode()
        with contextlib.suppress(OSError):  # then the fork sees the pipe close, and says so
            socket.send_fds(self._control, [packet], [mapping])

    def close(self) -> None:
        self._control.close()
        os.close(self.namespace)


def _map(own: int, control: int, entered: int) -> None:
    """The mapper's life."""
    os.dup2(control, 0)
    os.dup2(entered, 1)
    os.closerange(2, os.sysconf("SC_OPEN_MAX"))
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    unbind()
    os.setgroups([])
    os.setresgid(own, own, own)
    os.setresuid(own, own, own)
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    libc.prctl(libc.PR_SET_DUMPABLE, 1)  # changing the uid has cleared it
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
    libc.unshare(libc.CLONE_NEWUSER)
    os.write(1, b"1")
    os.close(1)
    requests = socket.socket(fileno=0)
    while True:
        packet, descriptors, _, _ = socket.recv_fds(requests, _PACKET, 1)
        if not packet:
            return
        process, uid = packet.split()
        with contextlib.suppress(OSError):  # the fork has ended; else it sees the pipe close
            _write(f"/proc/{process.decode()}/setgroups", "deny")
            for file in ("uid_map", "gid_map"):
                _write(f"/proc/{process.decode()}/{file}", f"{zygote.UID} {uid.decode()} 1")
            os.write(descriptors[0], b"1")
        for descriptor in descriptors:
            os.close(descriptor)


def unbind() -> None:
    """Lets the user of this process have any number of what all its namespaces count together; root can do that."""
    for name in _COUNTED:
        with contextlib.suppress(ValueError, PermissionError):
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def own_limits() -> dict[str, int]:
    """What a fork gets instead: as much as this process may have."""
    return {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[1] for name in _COUNTED}


def _write(path: str, text: str) -> None:
    with open(path, "wb", buffering=0) as file:
        file.write(text.encode())
