"""The launcher's side of zygotes: it starts them, asks them for forks, and learns of their end."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket

from . import uids
from .becoming import SECCOMP, become_zygote
from .child import Child, has_ended
from .mapper import Mapper, own_limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from .becoming import Entry
    from .cgroup import Group

_PACKET = 1 << 16


class Zygote:
    """The socket to one zygote."""

    def __init__(self, name: str, control: socket.socket, code: bytes, modules: Sequence[str]) -> None:
        """`code` is the filter of its forks, and `modules` are what it imports before it is ready."""
        self.name = name
        self.control = control
        self.ready = False
        """Whether it has answered that it is, or why it cannot be used."""
        self.pending: list[str] = []
        """The forks that it has been asked for and has not made yet."""
        with contextlib.suppress(BrokenPipeError):  # it has ended already, which is noticed elsewhere
            control.send(code)
            control.send(b"\0".join((b"M", *(module.encode() for module in modules))))

    def fork(self, name: str, fields: Sequence[str], descriptors: Sequence[int], entrances: Sequence[str]) -> None:
        """Asks for a fork, which will join the control groups with these entrances; OSError if that cannot be."""
        opened = list[int]()
        try:
            for path in entrances:
                opened.append(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
            packet = "\0".join(("F", name, *fields)).encode()
            socket.send_fds(self.control, [packet], [*descriptors, *opened], socket.MSG_DONTWAIT)
            self.pending.append(name)
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def receive(self) -> tuple[bytes, list[bytes], int] | None:
        """An answer: its kind, its fields, and the descriptor of a process or -1; no kind if there is none now.

        None once the zygote is gone.
        """
        try:
            packet, descriptors, _, _ = socket.recv_fds(self.control, _PACKET, 1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return b"", [], -1
        except ConnectionResetError:
            return None
        if not packet:
            return None
        kind, *fields = packet.split(b"\0")
        return kind, fields, descriptors[0] if descriptors else -1


class Parents:
    """The zygotes of one launcher, by their ids, and what tells of the end of their forks."""

    def __init__(
        self, children: Mapping[str, Child], entry: Entry, poll: select.poll, send: Callable[..., None]
    ) -> None:
        """`children` are all of the launcher's. Descriptors that `handle` is to be called for are registered with
        `poll`; `send` tells the server of an event."""
        self._children = children
        self._entry = entry
        self._poll = poll
        self._send = send
        self._zygotes: dict[str, Zygote] = {}
        self._mapper: Mapper | None = None
        self._watched: dict[int, str] = {}
        """The sockets of zygotes and the descriptors of their forks, with the ids."""
        self.uids = range(0)
        """Those of sandboxes; the first is that of all zygotes. None if they have the server's own."""
        self.shares: Mapping[str, int] = {}
        """The limits of each fork's user namespace."""

    def start(self, request: Mapping[str, Any]) -> Child:
        """Starts a zygote, which says later whether it can be used. `OSError`."""
        name = request["id"]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        log, written = os.pipe()
        for end in (log, written):  # a module that prints more than a pipe holds fails
            os.set_blocking(end, False)
        try:
            mapper = self._started_mapper()
            with open(os.path.join(self._entry.stage, SECCOMP), "rb") as file:
                code = file.read()
            pid = os.fork()
        except OSError:
            for descriptor in (ours.detach(), theirs.detach(), log, written):
                os.close(descriptor)
            raise
        if pid == 0:
            own = self.uids[0] if self.uids else None
            become_zygote(request["argv"], own, self._entry, theirs.fileno(), written, mapper.namespace)
        theirs.close()
        os.close(written)
        with contextlib.suppress(PermissionError):  # the child was faster and is bubblewrap already
            os.setpgid(pid, pid)
        self._zygotes[name] = Zygote(name, ours, code, request["modules"])
        self._watch(ours.fileno(), name)
        return Child(pid, log, None)

    def fork(self, request: Mapping[str, Any], control: int, log: int, group: Group | None) -> int:
        """Asks a zygote for a sandbox, which is there as soon as the zygote answers; `OSError` if that cannot be.

        Returns the socket through which the fork is told that it has its uid.
        """
        parent = self._zygotes.get(request["zygote"])
        if parent is None or not self._children[parent.name].running:
            raise ProcessLookupError("its zygote has ended")
        mapping, told = (end.detach() for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        try:
            counted = {**own_limits(), **uids.SHARED_LIMITS}
            single = ",".join([*_pairs(counted), request["single"]])
            fields = [str(request["disk"]), single, request["rules"], *_pairs(self.shares)]
            entrances = group.join_paths if group is not None else ()
            parent.fork(request["id"], fields, (control, log, mapping), entrances)
        except OSError:
            os.close(told)
            raise
        finally:
            os.close(mapping)
        return told

    def change_layer(self, request: Mapping[str, Any]) -> None:
        """Lets the mapper keep the files of a fork, or change what is kept of them; the server gets its answer."""
        what, number, name = request["op"], request["number"], request["id"]
        try:
            if self._mapper is None:
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
            if what != "keep":
                self._mapper.ask(what, number, name)
                return
            mounts = self._mounts_of(name)
            try:
                self._mapper.ask(what, number, name, [mounts])
            finally:
                os.close(mounts)
        except OSError as error:
            self._answer(number, error.errno or errno.EIO)

    def _mounts_of(self, name: str) -> int:
        """A descriptor of the mount namespace of a fork; `OSError` if it has ended.

        The mapper cannot open it: for that, it would need the right to trace the fork.
        """
        fork = self._children.get(name)
        pidfd = fork.pidfd if fork is not None else -1
        mounts = os.open(f"/proc/{process_of(pidfd)}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        if has_ended(pidfd):  # another process may have its id
            os.close(mounts)
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        return mounts

    def _answer(self, number: int, error: int) -> None:
        self._send(event="changed", number=number, error=error)

    def handle(self, descriptor: int) -> None:
        """Handles what is new with the mapper, a zygote or a fork."""
        if self._mapper is not None and descriptor == self._mapper.control.fileno():
            self._hear_mapper(self._mapper)
            return
        name = self._watched.get(descriptor, "")
        child, zygote = self._children.get(name), self._zygotes.get(name)
        if child is None:
            return
        if zygote is not None:
            self._hear(child, zygote)
        elif has_ended(descriptor):  # the event may be old: what had this number may have been closed meanwhile
            self._unwatch(descriptor)
            child.running = False

    def reaped(self, pid: int) -> None:
        """Notes that a process of the launcher's has ended."""
        if self._mapper is not None and self._mapper.pid == pid:
            self.lose_mapper()

    def lose_mapper(self) -> None:
        """Ends the zygotes whose forks cannot get a uid any more; the next ones get another mapper, without layers."""
        if self._mapper is None:
            return
        lost, self._mapper = self._mapper, None
        self._poll.unregister(lost.control.fileno())
        lost.close()
        self._send(event="unlayered")
        for number in lost.asked:
            self._answer(number, errno.EPIPE)
        for name in self._zygotes:
            self._children[name].end()

    def _started_mapper(self) -> Mapper:
        """The mapper, which is started if there is none."""
        if self._mapper is None:
            self._mapper = Mapper(self.uids)
            self._poll.register(self._mapper.control.fileno(), select.POLLIN)
        return self._mapper

    def _hear_mapper(self, mapper: Mapper) -> None:
        try:
            answer = mapper.receive()
        except OSError:
            self.lose_mapper()
            return
        if answer is not None:
            self._answer(*answer)

    def forget(self, name: str) -> None:
        """Closes the socket to a zygote that has ended; nothing for a child that is none."""
        if (zygote := self._zygotes.pop(name, None)) is not None:
            self._hang_up(zygote)

    def _hang_up(self, zygote: Zygote) -> None:
        if zygote.control.fileno() >= 0:
            self._unwatch(zygote.control.fileno())
            zygote.control.close()
        for name in zygote.pending:
            # When the launcher ends, a fork that was asked for may be gone before its zygote.
            if (fork := self._children.get(name)) is not None:
                fork.running = False
        zygote.pending.clear()

    def _hear(self, child: Child, zygote: Zygote) -> None:
        """Takes an answer of a zygote; if it has ended, so have its forks."""
        heard = zygote.receive()
        if heard is None:
            self._give_up(child, zygote)
            return
        kind, fields, pidfd = heard
        if not kind:
            return
        if not zygote.ready:
            zygote.ready = True
            reason = b"".join(fields).decode(errors="replace")
            self._send(event="zygote", id=zygote.name, reason=reason)
            return
        name = fields[-1].decode(errors="replace") if fields else ""
        if name not in zygote.pending:  # ours would not answer this: a module does it in its place
            if pidfd >= 0:
                os.close(pidfd)
            self._give_up(child, zygote)
            return
        zygote.pending.remove(name)
        fork = self._children[name]
        if kind == b"P" and pidfd < 0:
            # What would tell us of its end has found no free descriptor. It ends by itself if it gets no uid.
            os.write(fork.log, b"cannot start: the launcher has too many open files")
            os.close(fork.mapping)
            fork.mapping = -1
            fork.running = False
        elif kind == b"P":
            fork.pidfd = pidfd
            self._watch(pidfd, name)
            if fork.ending:
                fork.end()
            self._give_uid(fork)
        else:
            os.write(fork.log, b"cannot start: " + fields[0])
            fork.running = False

    def _give_up(self, child: Child, zygote: Zygote) -> None:
        self._hang_up(zygote)
        child.end()

    def _give_uid(self, fork: Child) -> None:
        """Gives a fork its own uid; it goes on as soon as it has it, and ends if it gets none."""
        if self._mapper is not None and (process := process_of(fork.pidfd)) > 0:
            self._mapper.map(process, fork.uid, fork.mapping, fork.layer)
        os.close(fork.mapping)
        fork.mapping = -1

    def _watch(self, descriptor: int, name: str) -> None:
        self._watched[descriptor] = name
        self._poll.register(descriptor, select.POLLIN)

    def _unwatch(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        del self._watched[descriptor]


def process_of(pidfd: int) -> int:
    """The id of the process that a descriptor stands for; -1 if it has ended, or cannot be found."""
    try:
        with open(f"/proc/self/fdinfo/{pidfd}") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("Pid:")), -1)
    except OSError:  # no descriptor is free
        return -1


def _pairs(limits: Mapping[str, int]) -> list[str]:
    """Limits as a fork is told them."""
    return [f"{name}={most}" for name, most in limits.items()]
