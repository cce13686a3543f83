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
    {"op": "fork", "id", "zygote": id, "uid", "limits", "disk", "single": limits, "rules", "layer": id or ""}
                                                      + the control socket; answers as for "launch"
    {"op": "keep", "id", "number"}                    the files of a fork, as a layer; {"op": "freeze"} once the fork
                                                      has ended, so that forks can start with them; {"op": "drop"}
                                                      ->  {"event": "changed", "number", "error": errno or 0}
                                                      later, if all are lost:  {"event": "unlayered"}
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
import sys
from typing import Any

from .. import libc
from . import cgroups, terminals, uids
from .becoming import Entry, become_bubblewrap, become_network
from .cgroup import Group
from .cgroup_detect import detect
from .child import Child, counts, has_ended
from .zygotes import Parents

_ROOTS_UIDS = (200_000, 65_536)
_TRIAL = {"memory": 1 << 30, "pids": 64, "cpus": 1.0}
"""Limits for the trial if the request does not contain the widest ones."""
_PACKET = 1 << 18
_REMOVAL_RETRY_MS = 20
"""A control group can stay busy for a moment after its last process was reaped."""
_FAREWELL_ROUNDS = 100


class Launcher:
    """The sandboxes of one server."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[str, Child] = {}
        self._hierarchy: cgroups.Hierarchy | None = None
        self._left: list[Group] = []
        """Groups of an earlier launcher whose processes have not ended yet."""
        self._entry = Entry()
        self._runtime = ""
        self.poll = select.poll()
        self._parents = Parents(self._children, self._entry, self.poll, self._send)

    def handle(self, descriptor: int) -> None:
        """Handles what is new with a zygote or a fork."""
        self._parents.handle(descriptor)

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
                case "keep" | "freeze" | "drop":
                    self._parents.change_layer(request)
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
            self._parents.reaped(pid)
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
            self._parents.forget(name)
            # The counters are removed with the group, but the cause of a sandbox's death is queried after its end. If
            # the last attempt to remove the group removed a part of it, the counts that were read before are kept.
            with contextlib.suppress(OSError):
                child.counts = counts(child.group)
            if child.group is None or child.group.remove():
                del self._children[name]
                self._send(event="exited", id=name, log=child.tail(), **child.counts)
                child.close()
        self._left = [group for group in self._left if not group.remove()]

    @property
    def unsettled(self) -> bool:
        return bool(self._left) or any(not child.running for child in self._children.values())

    def farewell(self) -> None:
        """Ends every sandbox and removes what the server would have removed: control groups and the runtime folder."""
        for child in self._children.values():
            child.end()
        self._parents.lose_mapper()
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
        self._parents.shares = uids.shares()
        given, shared, places = self._take_uids(request["shown"], request["views"], request["trial"])
        self._parents.uids = range(given[0], sum(given))
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
        name, log, group = request["id"], -1, None
        try:
            log = os.memfd_create("log")
            group = self._group(request)
            pid = os.fork()
        except OSError as error:
            self._refuse(name, error, log, group)
            return
        if pid == 0:
            become_bubblewrap(request["argv"], request["uid"], self._entry, control, log, group)
        with contextlib.suppress(PermissionError):  # the child was faster and is bubblewrap already
            os.setpgid(pid, pid)
        self._children[name] = Child(pid, log, group)
        self._tell_groups(name, group)

    def _zygote(self, request: dict[str, Any]) -> None:
        try:
            self._children[request["id"]] = self._parents.start(request)
        except OSError as error:
            self._refuse(request["id"], error)

    def _fork(self, request: dict[str, Any], control: int) -> None:
        name, log, group = request["id"], -1, None
        try:
            log = os.memfd_create("log")
            group = self._group(request)
            mapping = self._parents.fork(request, control, log, group)
        except OSError as error:
            self._refuse(name, error, log, group)
            return
        self._children[name] = Child(0, log, group, uid=request["uid"], mapping=mapping, layer=request["layer"])
        self._tell_groups(name, group)

    def _group(self, request: dict[str, Any]) -> Group | None:
        """A new control group with the limits of a request; None if there are none here."""
        if self._hierarchy is None or not self._hierarchy.version:
            return None
        return self._hierarchy.create(request["id"], cgroups.Limits(**request["limits"]))

    def _tell_groups(self, name: str, group: Group | None) -> None:
        if group is not None:
            self._send(event="launched", id=name, version=group.version, groups=group.by_controller)

    def _refuse(self, name: str, error: OSError, log: int = -1, group: Group | None = None) -> None:
        """Removes what there is of a sandbox that cannot start, and says why."""
        if group is not None:
            group.remove()
        if log >= 0:
            os.close(log)
        self._send(event="exited", id=name, log=f"cannot start: {error}", **counts(None))

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
            child.end()

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
