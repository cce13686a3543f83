"""A uid for each fork of a zygote.

A zygote's forks are in user namespaces below its own. For each of these to have another uid, zygotes are in a user
namespace with all uids of sandboxes. Only a process in that namespace can give a fork its uid, or the files of another:
the mapper, which does nothing else. Each request to it is one packet, whose words are separated by spaces:

    map pid uid layer     + the fork's end of a socket     ->  to the fork:  U count, + as many mounts, or
                                                               E reason: it has its uid, but does not get its layer
    keep number layer     + a fork's mount namespace       ->  number errno
    freeze number layer                                    ->  number errno
    drop number layer                                      ->  number errno
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import socket
from functools import partial

from .. import libc
from . import zygote
from .forked import to_the_end
from .layers import Layers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_FIRST = 2000
"""The first uid of sandboxes in the mapper's namespace; the zygotes themselves have `zygote.UID`."""
_COUNTED = ("NPROC", "SIGPENDING", "MSGQUEUE", "MEMLOCK")
"""Limits (RLIMIT_*) on what a user may have in total. Those in force when a user namespace is made bound what all users
in it have together: so that sandboxes take nothing from each other, only each fork itself gets them, where possible."""
_PACKET = 1 << 10


class Mapper:
    """A user namespace with the uids of all sandboxes, and the process in it that gives them out."""

    def __init__(self, uids: range) -> None:
        """The first of the uids is that of all zygotes; without any, all have that of this process. OSError or
        PermissionError if that is not allowed here."""
        self._uids = uids
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.asked = set[int]()
        """The numbers of requests that it has not answered yet."""
        ready, entered = os.pipe()
        self.pid = pid = os.fork()
        if pid == 0:
            with to_the_end(quiet=True):
                _serve(uids[0] if uids else None, theirs.fileno(), entered)
        theirs.close()
        os.close(entered)
        try:
            if not os.read(ready, 1):
                raise PermissionError("no user namespace for zygotes can be made")
            self.namespace = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
            if not uids:  # else the kernel refuses the group
                _write(f"/proc/{pid}/setgroups", "deny")
            for file, own in (("uid_map", os.geteuid()), ("gid_map", os.getegid())):
                _write(f"/proc/{pid}/{file}", self._entries(own))
        finally:
            os.close(ready)

    def _entries(self, own: int) -> str:
        if not self._uids:
            return f"{zygote.UID} {own} 1\n"
        first, *_ = self._uids
        return f"{zygote.UID} {first} 1\n{_FIRST} {first + 1} {len(self._uids) - 1}\n"

    def map(self, process: int, uid: int | None, mapping: int, layer: str) -> None:
        """Gives a fork its uid, or that of all if there is one only; it learns that from the socket `mapping`, and gets
        the mounts of its layer with it."""
        inner = zygote.UID if uid is None else _FIRST + uid - self._uids[0] - 1
        packet = f"map {process} {inner} {layer}".encode()
        with contextlib.suppress(OSError):  # then the fork sees the socket close, and says so
            socket.send_fds(self.control, [packet], [mapping])

    def ask(self, what: str, number: int, layer: str, descriptors: Sequence[int] = ()) -> None:
        """Asks for something to be done with a layer; `receive` returns the answer. OSError if it has ended."""
        socket.send_fds(self.control, [f"{what} {number} {layer}".encode()], descriptors)
        self.asked.add(number)

    def receive(self) -> tuple[int, int] | None:
        """An answer: the number of the request, and what went wrong, an errno or 0. OSError if it has ended; None if
        there is no answer."""
        try:
            packet = self.control.recv(_PACKET, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        if not packet:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        number, error = map(int, packet.split())
        self.asked.discard(number)
        return number, error

    def close(self) -> None:
        self.control.close()
        os.close(self.namespace)


def _serve(own: int | None, control: int, entered: int) -> None:
    """The mapper's life."""
    os.dup2(control, 0)
    os.dup2(entered, 1)
    os.closerange(2, os.sysconf("SC_OPEN_MAX"))
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel then collects its processes that have ended
    unbind()
    if own is not None:
        os.setgroups([])
        os.setresgid(own, own, own)
        os.setresuid(own, own, own)
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    libc.prctl(libc.PR_SET_DUMPABLE, 1)  # changing the uid has cleared it
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
    libc.unshare(libc.CLONE_NEWUSER)
    os.write(1, b"1")
    os.close(1)
    requests, layers = socket.socket(fileno=0), Layers()
    while True:
        packet, descriptors, _, _ = socket.recv_fds(requests, _PACKET, 1)
        if not packet:
            return
        words = packet.decode().split(" ")
        try:
            if words[0] == "map":
                _map(layers, words, *descriptors)
            else:
                _change(requests, layers, words, descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


def _map(layers: Layers, words: Sequence[str], mapping: int) -> None:
    """Gives a fork its uid and its layer, as a request says."""
    _, process, uid, layer = words
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(mapping)) as told:
        # The fork has ended if this fails; else it sees the socket close.
        _write(f"/proc/{process}/setgroups", "deny")
        for file in ("uid_map", "gid_map"):
            _write(f"/proc/{process}/{file}", f"{zygote.UID} {uid} 1")
        if layer:
            _share(layers, layer, process, int(uid), told)
        else:
            told.send(b"U 0")


def _share(layers: Layers, layer: str, process: str, uid: int, told: socket.socket) -> None:
    """Gives a fork the mounts of a layer. It has its uid by now: mounts take over the ids of its namespace as they are
    at this time."""
    mounts = list[int]()
    try:
        if uid == zygote.UID:
            mounts += layers.of_fork(layer)
        else:
            with open(f"/proc/{process}/ns/user", "rb") as users:
                mounts += layers.of_fork(layer, users.fileno())
        socket.send_fds(told, [f"U {len(mounts)}".encode()], mounts)
    except OSError as error:
        told.send(f"E {error.strerror}".encode())
    finally:
        for mount in mounts:
            os.close(mount)


def _change(requests: socket.socket, layers: Layers, words: Sequence[str], descriptors: Sequence[int]) -> None:
    """Does with a layer what a request says, and answers."""
    what, number, layer = words
    if what == "keep":
        _answer(requests, number, partial(layers.keep, layer, *descriptors))
    elif what == "freeze":
        _answer(requests, number, partial(layers.freeze, layer))
    elif layers.forget(layer):
        _apart(partial(_answer, requests, number, partial(layers.remove, layer)))
    else:
        _answer(requests, number, lambda: None)


def _answer(requests: socket.socket, number: str, change: Callable[[], None]) -> None:
    failed = 0
    try:
        change()
    except OSError as error:
        failed = error.errno or errno.EIO
    requests.send(f"{number} {failed}".encode())


def _apart(work: Callable[[], None]) -> None:
    """Works in another process, if there can be one: to free many files takes long, and forks wait for their uid."""
    try:
        pid = os.fork()
    except OSError:
        work()
        return
    if pid == 0:
        with to_the_end(quiet=True):
            work()


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
