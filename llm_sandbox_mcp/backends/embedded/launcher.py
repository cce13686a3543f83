"""The parent of every sandbox: a small single-threaded process that makes sure that none of them outlives the server.

bubblewrap ties a sandbox's life to the thread that started it, forking a large server is slow, and joining a control
group and dropping privileges must happen between fork and exec. So the server starts this process once, as
`python -m llm_sandbox_mcp.backends.embedded.launcher CONTROL_FD`, and sends it requests as JSON packets:

    {"op": "start", "server", "runtime", "shown": {name: folder}, "views": the same, "trial": argv, "limits"}
                                                      ->  {"event": "ready", "cgroups": version,
                                                           "lacking": {limit: reason}, "remedy": step,
                                                           "uids": [first, count], "shared": [cause, step], "places",
                                                           "terminals": whether sandboxes have their own}
    {"op": "launch", "id", "argv", "uid", "limits"}   + the control socket of the sandbox
                                                      ->  {"event": "launched", "id", "version", "groups"}
    {"op": "zygote", "id", "argv", "modules"}         ->  {"event": "zygote", "id", "reason": why it cannot be used}
                                                      later, always:  {"event": "exited", ...} as below
    {"op": "fork", "id", "zygote": id, "uid", "limits", "disk", "single": limits, "rules"}
                                                      + the control socket; answers as for "launch"
    {"op": "connect", "id", "program", "uid"}         + its network namespace, and a pipe that gets "1" once it is open
                                                      later, if it fails first:  {"event": "disconnected", "id"}
    {"op": "kill", "id"}                              later, always:  {"event": "exited", "id", "log", counters}

When the server is gone, for whatever reason, the control socket reaches EOF. This process then ends every sandbox and
removes the server's control groups and its runtime folder.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import stat
import sys
from dataclasses import dataclass, field
from typing import Any

from .. import libc
from . import cgroups, terminals, uids
from .becoming import SECCOMP, Entry, become_bubblewrap, become_network, become_zygote
from .cgroup import Group
from .cgroup_detect import detect
from .zygotes import Mapper, Zygote, as_fields, has_ended, own_limits, process_of

_ROOTS_UIDS = (200_000, 65_536)
_TRIAL = {"memory": 1 << 30, "pids": 64, "cpus": 1.0}
"""Limits for the trial if the request does not contain the widest ones."""
_PACKET = 1 << 18
_LOG_BYTES = 2000
_REMOVAL_RETRY_MS = 20
"""A control group can stay busy for a moment after its last process was reaped."""
_FAREWELL_ROUNDS = 100


@dataclass(slots=True)
class _Child:
    pid: int
    """0 if it is a fork of a zygote."""
    log: int
    group: Group | None
    pidfd: int = -1
    """For a fork of a zygote, as soon as there is one."""
    zygote: Zygote | None = None
    """If it is one."""
    uid: int | None = None
    mapping: int = -1
    """For a fork until it has its uid: the pipe through which it is told so."""
    running: bool = True
    ending: bool = False
    """Whether the launcher has ended it, which also ends its network, in any order."""
    network: int = 0
    """The process that opens its network, or 0."""
    counts: dict[str, int | float | None] = field(default_factory=lambda: _counts(None))
    """How often it ran into its limits, when that was last read."""


class Launcher:
    """The sandboxes of one server."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[str, _Child] = {}
        self._hierarchy: cgroups.Hierarchy | None = None
        self._left: list[Group] = []
        """Groups of an earlier launcher whose processes have not ended yet."""
        self._entry = Entry()
        self._runtime = ""
        self._uids = range(0)
        self._shares: dict[str, int] = {}
        self._mapper: Mapper | None = None
        self.poll = select.poll()
        self._watched: dict[int, str] = {}
        """The sockets of zygotes and the descriptors of their forks, with the ids."""

    def handle(self, descriptor: int) -> None:
        """Handles what is new with a zygote or a fork."""
        name = self._watched.get(descriptor, "")
        child = self._children.get(name)
        if child is None:
            return
        # The event may be old: what had this number may have been closed meanwhile.
        if child.zygote is None and has_ended(descriptor):
            self._unwatch(descriptor)
            child.running = False
        elif child.zygote is not None:
            self._hear(child, child.zygote)

    def answer(self) -> bool:
        """Handles one packet; False once the server is gone."""
        try:
            packet, descriptors, _, _ = socket.recv_fds(self._control, _PACKET, 2)
        except ConnectionResetError:
            return False  # the server is gone and has not read all of our packets
        try:
            if not packet:
                return False
            request = json.loads(packet)
            match request["op"]:
                case "start":
                    self._start(request)
                case "launch":
                    self._launch(request, *descriptors)
                case "zygote":
                    self._zygote(request)
                case "fork":
                    self._fork(request, *descriptors)
                case "connect":
                    self._connect(request, *descriptors)
                case "kill":
                    self._kill(request)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return True

    def reap(self) -> None:
        """Collects ended processes: bubblewraps, and the PID 1 of each sandbox whose bubblewrap ended before it."""
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            if self._mapper is not None and self._mapper.pid == pid:
                self._lose_mapper(self._mapper)
            for name, child in self._children.items():
                if child.pid == pid:
                    child.running = False
                elif child.network == pid:
                    child.network = 0
                    if child.running and not child.ending:
                        self._send(event="disconnected", id=name)
        for child in self._children.values():
            if child.network and not child.running:
                os.kill(child.network, signal.SIGKILL)
        self.settle()

    def settle(self) -> None:
        """Reports the sandboxes that have ended, once their control groups are gone too."""
        for name, child in list(self._children.items()):
            if child.running or child.network:
                continue
            if child.zygote is not None:
                self._hang_up(child.zygote)
            # The counters are removed with the group, but the cause of a sandbox's death is queried after its end. If
            # the last attempt to remove the group removed a part of it, the counts that were read before are kept.
            with contextlib.suppress(OSError):
                child.counts = _counts(child.group)
            if child.group is None or child.group.remove():
                del self._children[name]
                self._send(event="exited", id=name, log=_tail(child.log), **child.counts)
                os.close(child.log)
                if child.pidfd >= 0:
                    os.close(child.pidfd)
                if child.mapping >= 0:
                    os.close(child.mapping)
        self._left = [group for group in self._left if not group.remove()]

    @property
    def unsettled(self) -> bool:
        return bool(self._left) or any(not child.running for child in self._children.values())

    def farewell(self) -> None:
        """Ends every sandbox and removes what the server would have removed: control groups and the runtime folder."""
        for child in self._children.values():
            self._end(child)
        if self._mapper is not None:
            self._lose_mapper(self._mapper)
        for _ in range(_FAREWELL_ROUNDS):
            for child in self._children.values():
                if not child.pid and (child.pidfd < 0 or has_ended(child.pidfd)):
                    child.running = False
            if not self._children and not self._left and not _has_children():
                break
            select.poll().poll(_REMOVAL_RETRY_MS)
            self.reap()
        if self._hierarchy is not None:
            self._hierarchy.close()
        if self._runtime:
            shutil.rmtree(self._runtime, ignore_errors=True)

    def _start(self, request: dict[str, Any]) -> None:
        self._runtime = request["runtime"]
        found = detect(family=[os.getppid()])
        # Groups that an earlier launcher of this server left behind when it was killed; its sandboxes died with it.
        if found.sweep(lambda server: bool(server != request["server"])):
            self._left = found.groups(request["server"])
        self._hierarchy = found.claim(request["server"])
        lacking = self._hierarchy.try_limits(cgroups.Limits(**{**_TRIAL, **request["limits"]}))
        self._shares = dict(uids.shares())
        given, shared, places = self._take_uids(request["shown"], request["views"], request["trial"])
        self._uids = range(given[0], sum(given))
        entry = self._entry
        entry.stage = places["stage"]
        own = entry.own_terminals = terminals.can_be_owned(entry.stage, entry.shares)
        groups = {"cgroups": self._hierarchy.version, "lacking": lacking, "remedy": self._hierarchy.step}
        self._send(event="ready", uids=given, shared=shared, places=places, terminals=own, **groups)

    def _take_uids(
        self, shown: dict[str, str], views: dict[str, str], trial: list[str]
    ) -> tuple[tuple[int, int], tuple[str, ...], dict[str, str]]:
        """The uids for sandboxes (first, count), cause and next step if there are none, and the paths at which any of
        these uids can reach the folders that all sandboxes see. Without uids, there are no views: code would have all
        rights of the server's user in them, such as connecting to sockets."""
        if os.geteuid() == 0:
            self._entry.own_devices = True
            places = shown
            if views:
                with contextlib.suppress(PermissionError):  # root of a container may not mount; views are copied then
                    places = uids.show(shown, views)
            return _ROOTS_UIDS, ("", ""), places
        shares = uids.shares()
        try:
            lent = uids.lent()
            uids.try_out(trial, lent, shares)
        except uids.NotLent as error:
            with contextlib.suppress(uids.NotLent):
                uids.try_out(trial, None, shares)
                self._entry.shares = shares
            return (0, 0), error.args, shown
        self._entry.shares = shares
        uids.enter(lent)
        return (1, lent.count), ("", ""), uids.show(shown, views)

    def _launch(self, request: dict[str, Any], control: int) -> None:
        log, group = -1, None
        try:
            log = os.memfd_create("log")
            if self._hierarchy is not None and self._hierarchy.version:
                group = self._hierarchy.create(request["id"], cgroups.Limits(**request["limits"]))
            pid = os.fork()
        except OSError as error:
            if group is not None:
                group.remove()
            if log >= 0:
                os.close(log)
            self._send(event="exited", id=request["id"], log=f"cannot start: {error}", **_counts(None))
            return
        if pid == 0:
            become_bubblewrap(request["argv"], request["uid"], self._entry, control, log, group)
        with contextlib.suppress(PermissionError):  # the child was faster and is bubblewrap already
            os.setpgid(pid, pid)
        self._children[request["id"]] = _Child(pid, log, group)
        if group is not None:
            self._send(event="launched", id=request["id"], version=group.version, groups=group.by_controller)

    def _zygote(self, request: dict[str, Any]) -> None:
        """Starts a zygote, which says later whether it can be used."""
        name = request["id"]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        log, written = os.pipe()
        os.set_blocking(log, False)
        try:
            if self._uids and self._mapper is None:
                self._mapper = Mapper(self._uids)
            with open(os.path.join(self._entry.stage, SECCOMP), "rb") as file:
                code = file.read()
            pid = os.fork()
        except OSError as error:
            ours.close()
            theirs.close()
            os.close(log)
            os.close(written)
            self._send(event="exited", id=name, log=f"cannot start: {error}", **_counts(None))
            return
        if pid == 0:
            namespace = self._mapper.namespace if self._mapper is not None else None
            own = self._uids[0] if self._uids else None
            become_zygote(request["argv"], own, self._entry, theirs.fileno(), written, namespace)
        theirs.close()
        os.close(written)
        with contextlib.suppress(PermissionError):
            os.setpgid(pid, pid)
        zygote = Zygote(name, ours, code, request["modules"])
        self._children[name] = _Child(pid, log, None, zygote=zygote)
        self._watch(ours.fileno(), name)

    def _fork(self, request: dict[str, Any], control: int) -> None:
        """Asks a zygote for a sandbox, which is there as soon as the zygote answers."""
        name, parent = request["id"], self._children.get(request["zygote"])
        log, group, mapping, told = -1, None, -1, -1
        try:
            log = os.memfd_create("log")
            if parent is None or parent.zygote is None or not parent.running:
                raise ProcessLookupError("its zygote has ended")
            if self._hierarchy is not None and self._hierarchy.version:
                group = self._hierarchy.create(name, cgroups.Limits(**request["limits"]))
            mapping, told = os.pipe()
            counted = {**own_limits(), **uids.SHARED_LIMITS}
            single = ",".join([*(f"{limit}={most}" for limit, most in counted.items()), request["single"]])
            fields = [str(request["disk"]), single, request["rules"], *as_fields(self._shares)]
            parent.zygote.fork(name, fields, (control, log, mapping), group.join_paths if group is not None else ())
        except OSError as error:
            if group is not None:
                group.remove()
            for descriptor in (log, told):
                if descriptor >= 0:
                    os.close(descriptor)
            self._send(event="exited", id=name, log=f"cannot start: {error}", **_counts(None))
            return
        finally:
            if mapping >= 0:
                os.close(mapping)
        self._children[name] = _Child(0, log, group, uid=request["uid"], mapping=told)
        if group is not None:
            self._send(event="launched", id=name, version=group.version, groups=group.by_controller)

    def _hear(self, child: _Child, zygote: Zygote) -> None:
        """Takes an answer of a zygote; if it has ended, so have its forks."""
        heard = zygote.receive()
        if heard is None:
            self._hang_up(zygote)
            self._end(child)
            return
        kind, fields, pidfd = heard
        if not kind:
            return
        if not zygote.ready:
            zygote.ready = True
            reason = b"".join(fields).decode(errors="replace")
            self._send(event="zygote", id=zygote.name, reason=reason)
            return
        name = fields[-1].decode()
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
                self._end(fork)
            self._give_uid(fork)
        else:
            os.write(fork.log, b"cannot start: " + fields[0])
            fork.running = False

    def _lose_mapper(self, mapper: Mapper) -> None:
        """Ends the zygotes whose forks cannot get a uid any more; the next ones get another mapper."""
        mapper.close()
        self._mapper = None
        for child in self._children.values():
            if child.zygote is not None:
                self._end(child)

    def _hang_up(self, zygote: Zygote) -> None:
        """Closes the socket to a zygote that has ended, or that will."""
        if zygote.control.fileno() >= 0:
            self._unwatch(zygote.control.fileno())
            zygote.control.close()
        for name in zygote.pending:
            self._children[name].running = False
        zygote.pending.clear()

    def _give_uid(self, fork: _Child) -> None:
        """Gives a fork its own uid; it goes on as soon as it has it, and ends if it gets none."""
        if fork.uid is None:
            with contextlib.suppress(BrokenPipeError):
                os.write(fork.mapping, b"0")
        elif self._mapper is not None and (process := process_of(fork.pidfd)) > 0:
            self._mapper.map(process, fork.uid, fork.mapping)
        os.close(fork.mapping)
        fork.mapping = -1

    def _watch(self, descriptor: int, name: str) -> None:
        self._watched[descriptor] = name
        self.poll.register(descriptor, select.POLLIN)

    def _unwatch(self, descriptor: int) -> None:
        self.poll.unregister(descriptor)
        del self._watched[descriptor]

    def _connect(self, request: dict[str, Any], namespace: int, ready: int) -> None:
        child = self._children.get(request["id"])
        if child is None or not child.running:
            return  # the server notices the failure by EOF on the pipe
        try:
            pid = os.fork()
        except OSError as error:
            os.write(child.log, f"cannot open its network: {error}".encode())
            return
        if pid == 0:
            become_network(
                request["program"],
                request["uid"],
                self._entry,
                child.log,
                child.group,
                namespace=namespace,
                ready=ready,
            )
        child.network = pid

    def _kill(self, request: dict[str, Any]) -> None:
        child = self._children.get(request["id"])
        if child is not None:
            self._end(child)

    def _end(self, child: _Child) -> None:
        child.ending = True
        if child.running and child.pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
        elif child.running and child.pid:
            # The whole process group: a process that it has just started and that waits for it would wait forever.
            os.killpg(child.pid, signal.SIGKILL)
        if child.group is not None:
            child.group.kill()

    def _send(self, **event: Any) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._control.send(json.dumps(event).encode())


def _has_children() -> bool:
    """Whether a child is left to wait for: a sandbox's PID 1 may end after its bubblewrap and its control group."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _counts(group: Group | None) -> dict[str, int | float | None]:
    if group is None:
        return {"oom_kills": 0, "pids_refused": 0, "cpu": None}
    return {"oom_kills": group.oom_kills(), "pids_refused": group.pids_refused(), "cpu": group.cpu_usage()}


def _tail(log: int) -> str:
    if not stat.S_ISREG(os.fstat(log).st_mode):
        with contextlib.suppress(BlockingIOError):
            return os.read(log, _LOG_BYTES).decode(errors="replace").strip()
        return ""
    size = os.fstat(log).st_size
    return os.pread(log, _LOG_BYTES, max(0, size - _LOG_BYTES)).decode(errors="replace").strip()


def main() -> None:
    """Serves the control socket until the server is gone."""
    control = socket.socket(fileno=int(sys.argv[1]))
    # Sandboxes run as other users, so files made for them must not be private to the user who started the server.
    os.umask(0o022)
    libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    # The process that started the server may have blocked signals, and all processes started here would inherit that.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    launcher = Launcher(control)
    poll = launcher.poll
    poll.register(control.fileno(), select.POLLIN)
    poll.register(woken, select.POLLIN)
    serving = True
    while serving:
        for descriptor, _ in poll.poll(_REMOVAL_RETRY_MS if launcher.unsettled else None):
            if descriptor == woken:
                os.read(woken, 4096)
                launcher.reap()
            elif descriptor != control.fileno():
                launcher.handle(descriptor)
            elif not launcher.answer():
                serving = False
        if launcher.unsettled:
            launcher.settle()
    launcher.farewell()


if __name__ == "__main__":
    main()
