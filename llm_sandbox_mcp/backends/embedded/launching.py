"""The server's side of the launcher: starts it, sends it requests, and receives its reports on ended sandboxes."""

import contextlib
import errno
import itertools
import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import anyio
import anyio.to_thread

from ...base.errors import EngineUnavailable
from ...base.messages import Problem
from ...host import programs
from ..base import Usage
from ..counters import Counters
from .cgroup_detect import detect
from .descriptors import PacketSocket, PipeReader

_logger = logging.getLogger(__name__)

_FAREWELL = 1.5
"""Seconds for the launcher to end all sandboxes when the server ends; after that it is killed, which ends the rest."""


@dataclass(slots=True)
class Launched:
    """A sandbox as the launcher knows it."""

    exited: anyio.Event = field(default_factory=anyio.Event)
    log: str = ""
    """The last output of bubblewrap, once it has exited."""
    counts: Usage = field(default_factory=Usage)
    """The result of `LauncherClient.usage` at its end."""
    counters: Counters | None = None
    """The counters of its control group, if it has one."""
    killed: bool = False
    """Whether its end was requested."""
    heard: anyio.Event = field(default_factory=anyio.Event)
    """For a zygote: set once it can be used, or once it is known that it cannot."""
    reason: str = ""
    """Why a zygote cannot be used; empty if it can."""

    def end(self) -> None:
        """Marks it as gone; also if the launcher is gone, so that no report on it can come any more."""
        if self.counters is not None:
            self.counters.close()
        self.counters = None
        self.exited.set()
        self.heard.set()


@dataclass(slots=True)
class _Change:
    """Something that is done with a layer."""

    what: Literal["keep", "freeze", "drop"]
    layer: str
    done: anyio.Event = field(default_factory=anyio.Event)
    error: int = errno.EPIPE
    """An errno; this one if the launcher ends before it answers."""


class LauncherClient:
    """One launcher process."""

    def __init__(self, control: socket.socket) -> None:
        self._control = PacketSocket(control)
        self._launched: dict[str, Launched] = {}
        self._ready = anyio.Event()
        self._numbers = itertools.count(1)
        self._changes: dict[int, _Change] = {}
        self.layers = set[str]()
        """The ids of sandboxes that have ended and with whose files others can start."""
        self.cgroups = 0
        """Version of the control groups in use; 0 if there are none."""
        self.lacking: Mapping[str, str] = {}
        """The limits that the control groups do not enforce, with the reasons."""
        self.remedy = ""
        """What to do so that there are control groups; empty if there are."""
        self.uids = range(0)
        """The uids for sandboxes, none of which is the server's; empty if sandboxes have the server's uid."""
        self.can_fork = True
        """Whether zygotes are possible: they have the first of the uids for themselves."""
        self.shared = Problem("")
        """Why sandboxes have the server's uid; empty if they have their own."""
        self.places: Mapping[str, Path] = {}
        """The paths at which a sandbox of any uid can reach the folders that were given to `start`."""
        self.own_terminals = False
        """Whether each sandbox has its own pseudo-terminals."""
        self.gone = False
        self.server = ""
        """The server whose control groups it manages; empty until it is started."""

    async def start(
        self,
        server: str,
        runtime: Path,
        shown: Mapping[str, Path],
        trial: Sequence[str],
        limits: Mapping[str, float] = MappingProxyType({}),
        views: Mapping[str, str] = MappingProxyType({}),
    ) -> bool:
        """Sends the launcher its server and settings, and waits until it is ready; False if it ended instead.

        `shown` are the folders that sandboxes will see; the one named `stage` contains the system call filter. `trial`
        is a command that must succeed before an ordinary user's sandboxes get their own uids. `limits` are the widest
        of any sandbox. `views` are folders that are shown as well if that is possible.
        """
        self.server = server
        folders = {name: str(path) for name, path in shown.items()}
        about = {"shown": folders, "views": dict(views), "trial": trial, "limits": dict(limits)}
        request = {"op": "start", "server": server, "runtime": str(runtime), **about}
        with contextlib.suppress(EngineUnavailable):
            await self._send(request)
            await self._ready.wait()
            return not self.gone
        return False  # it ended before the request was sent

    async def launch(
        self, name: str, argv: list[str], uid: int | None, limits: dict[str, float], control: socket.socket
    ) -> Launched:
        """Lets the launcher start a sandbox; the sandbox's own control socket reports whether it came up."""
        request = {"op": "launch", "id": name, "argv": argv, "uid": uid, "limits": limits}
        return await self._begin(request, (control.fileno(),))

    async def zygote(self, name: str, argv: list[str], modules: Sequence[str]) -> Launched:
        """Lets the launcher start a zygote, which imports modules; `Launched.heard` reports whether it can be used."""
        return await self._begin({"op": "zygote", "id": name, "argv": argv, "modules": list(modules)})

    async def fork(
        self,
        name: str,
        zygote: str,
        uid: int | None,
        limits: dict[str, float],
        about: Mapping[str, object],
        control: socket.socket,
        layer: str = "",
    ) -> Launched:
        """As `launch`, for a sandbox that is a fork of a zygote; `about` is the rest of what the launcher needs. It
        starts with the files of the sandbox whose id is `layer`, if these are kept, or not at all."""
        request = {"op": "fork", "id": name, "zygote": zygote, "uid": uid, "limits": limits, "layer": layer, **about}
        return await self._begin(request, (control.fileno(),))

    async def change_layer(self, what: Literal["keep", "freeze", "drop"], name: str) -> int:
        """Lets the launcher keep the files of a sandbox; or make them read-only, after its end, so that others can
        start with them; or forget them. Returns an errno, or 0."""
        if what == "drop":
            self.layers.discard(name)
        number, change = next(self._numbers), _Change(what, name)
        self._changes[number] = change
        try:
            with contextlib.suppress(EngineUnavailable):
                await self._send({"op": what, "id": name, "number": number})
                await change.done.wait()
        finally:
            del self._changes[number]
        return change.error

    async def ended(self, name: str) -> None:
        """Returns once a sandbox or a zygote has ended."""
        if (launched := self._launched.get(name)) is not None:
            await launched.exited.wait()

    async def _begin(self, request: dict[str, Any], descriptors: tuple[int, ...] = ()) -> Launched:
        launched = self._launched[request["id"]] = Launched()
        try:
            await self._send(request, descriptors)
        except BaseException:
            del self._launched[request["id"]]
            raise
        return launched

    async def connect(self, name: str, program: str, uid: int | None, namespace: int) -> bool:
        """Opens the network of a sandbox with slirp4netns; False if that fails; `Launched.log` will have the reason."""
        ready, theirs = os.pipe()
        reader = PipeReader(ready)
        try:
            try:
                await self._send({"op": "connect", "id": name, "program": program, "uid": uid}, (namespace, theirs))
            finally:
                os.close(theirs)
            return await reader.receive() == b"1"
        except anyio.EndOfStream:
            return False
        finally:
            reader.close()

    async def kill(self, name: str) -> None:
        """Ends a sandbox; does nothing if it has ended."""
        launched = self._launched.get(name)
        if launched is not None:
            # Read before the kill, which changes the counters.
            launched.counts, launched.killed = await self.usage(name), True
            await self._send({"op": "kill", "id": name})

    async def usage(self, name: str) -> Usage:
        """How often a sandbox has hit its limits, and the processor time that it has used, so far.

        Every run calls this twice, so this process reads the counters itself. For a sandbox that has ended, use
        `Launched.counts`.
        """
        launched = self._launched.get(name)
        if self.gone or launched is None or launched.counters is None:
            return Usage()
        if launched.killed:
            return launched.counts
        try:
            counters = launched.counters
            return Usage(counters.oom_kills(), counters.pids_refused(), counters.cpu())
        except OSError:
            # The launcher has removed the group; its report follows.
            await launched.exited.wait()
            return launched.counts

    async def serve(self) -> None:
        """Handles the launcher's reports until it is gone."""
        try:
            while True:
                packet, _ = await self._control.receive()
                self._take(json.loads(packet))
        except anyio.EndOfStream:
            pass
        finally:
            # Also when the server cancels this task: no task may go on waiting for a report on a sandbox's end.
            self.gone = True
            self._ready.set()
            for launched in self._launched.values():
                launched.end()
            for change in self._changes.values():
                change.done.set()

    def close(self) -> None:
        """Closes the control socket, which ends the launcher and all its sandboxes."""
        self._control.close()

    def _take(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "ready":
                self.cgroups, self.lacking, self.remedy = event["cgroups"], event["lacking"], event["remedy"]
                self.shared = Problem(*event["shared"])
                first, count = event["uids"]
                self.can_fork = count != 1
                self.uids = range(first + (count > 1), first + count)
                self.own_terminals = event["terminals"]
                self.places = {name: Path(place) for name, place in event["places"].items()}
                self._ready.set()
            case "exited":
                launched = self._launched.pop(event["id"])
                launched.log = event["log"]
                launched.counts = Usage(event["oom_kills"], event["pids_refused"], event["cpu"])
                launched.end()
            case "zygote":
                launched = self._launched[event["id"]]
                launched.reason = event["reason"]
                launched.heard.set()
            case "changed":
                if (change := self._changes.get(event["number"])) is not None:  # else nobody waits for it any more
                    change.error = event["error"]
                    if change.what == "freeze" and not change.error:
                        self.layers.add(change.layer)  # not later: the next event may be that it is lost
                    change.done.set()
            case "unlayered":
                self.layers.clear()
            case "disconnected":
                _logger.warning("sandbox %s has lost its network: slirp4netns ended; open a new session", event["id"])
            case "launched":
                with contextlib.suppress(OSError):  # it has ended already: its "exited" event follows
                    self._launched[event["id"]].counters = Counters(event["version"], event["groups"])

    async def _send(self, request: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
        if self.gone:
            raise launcher_gone()
        try:
            await self._control.send(json.dumps(request).encode(), descriptors)
        except anyio.BrokenResourceError:
            raise launcher_gone() from None


@asynccontextmanager
async def open_launcher() -> AsyncIterator[LauncherClient]:
    """Starts a launcher that lives as long as the scope; its end is shielded from cancellation and bounded in time."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    launcher = LauncherClient(ours)
    try:
        with theirs, anyio.CancelScope(shield=True):
            # Shielded: if the start were cancelled halfway, it would leave a process that nothing ends.
            process = await anyio.open_process(
                programs.command(f"{__package__}.launcher", theirs.fileno()),
                stdin=None,
                stdout=None,
                stderr=None,
                env=programs.ENVIRONMENT,
                cwd=programs.FOLDER,
                pass_fds=(theirs.fileno(),),
                # Ctrl-C reaches the terminal's whole process group. The server decides what it means; the launcher ends
                # with the server.
                start_new_session=True,
            )
    except OSError as error:
        launcher.close()
        raise EngineUnavailable(
            f"the sandbox launcher does not start: {error.strerror}", "free memory, processes or files of this machine"
        ) from error
    try:
        yield launcher
    finally:
        launcher.close()
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(_FAREWELL):
                await process.wait()
            if process.returncode is None:
                process.kill()
                await process.wait()
            if process.returncode and launcher.server:
                # It was killed, so it has not removed its control groups, and the server may end before another does.
                await anyio.to_thread.run_sync(_remove_groups, launcher.server)


def _remove_groups(server: str) -> None:
    """Removes the control groups of a server whose launcher has ended, as far as they are empty by now."""
    detect().sweep(lambda other: other != server)


def launcher_gone() -> EngineUnavailable:
    """The error to raise when the launcher has ended during a request."""
    return EngineUnavailable("the sandbox launcher has just ended", "try again")
