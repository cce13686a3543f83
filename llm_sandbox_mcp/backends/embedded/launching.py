"""The server's side of the launcher: starts it, asks it, and learns from it how sandboxes ended."""

import contextlib
import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import anyio

from ... import own_programs
from ...errors import EngineUnavailable
from ..base import Usage
from ..counters import Counters
from .descriptors import PacketSocket, PipeReader

_logger = logging.getLogger(__name__)

_FAREWELL = 1.5
"""Seconds for the launcher to end all sandboxes at the server's end; what it leaves then, its own death ends."""


@dataclass(slots=True)
class Launched:
    """A sandbox as the launcher knows it."""

    exited: anyio.Event = field(default_factory=anyio.Event)
    log: str = ""
    """The last words of bubblewrap, once it exited."""
    counts: Usage = field(default_factory=Usage)
    """What `LauncherClient.usage` gave at the end."""
    counters: Counters | None = None
    """Those of its control group, where there is one."""
    killed: bool = False
    """Whether its end was asked for."""

    def end(self) -> None:
        """Notes that it is gone, or that nobody will tell any more."""
        if self.counters is not None:
            self.counters.close()
        self.counters = None
        self.exited.set()


class LauncherClient:
    """One launcher process."""

    def __init__(self, control: socket.socket) -> None:
        self._control = PacketSocket(control)
        self._launched: dict[str, Launched] = {}
        self._ready = anyio.Event()
        self.cgroups = 0
        """Version of the control groups in use; 0 where there are none."""
        self.lacking: Mapping[str, str] = {}
        """The limits that they do not hold, with the reasons: "cause; next step"."""
        self.uids = range(0)
        """Those that sandboxes can have, none of which is the server's; empty where theirs is."""
        self.shared = ""
        """Why that is so: "cause; next step"."""
        self.places: Mapping[str, Path] = {}
        """Where a sandbox of any uid can get to the folders that were given to `start`."""
        self.own_terminals = False
        """Whether each sandbox has pseudo-terminals of its own."""
        self.gone = False

    async def start(
        self,
        server: str,
        runtime: Path,
        shown: Mapping[str, Path],
        trial: Sequence[str],
        limits: Mapping[str, float] = MappingProxyType({}),
    ) -> bool:
        """Tells the launcher whose it is; returns when it is ready, false when it ended instead.

        `shown` are folders that sandboxes will see, with the program that filters system calls in `stage`; `trial` is
        what has to succeed for an ordinary user's sandboxes to have uids of their own, `limits` are the widest of any.
        """
        folders = {name: str(path) for name, path in shown.items()}
        about = {"shown": folders, "trial": trial, "limits": dict(limits)}
        request = {"op": "start", "server": server, "runtime": str(runtime), **about}
        with contextlib.suppress(EngineUnavailable):
            await self._send(request)
            await self._ready.wait()
            return not self.gone
        return False  # it ended before it was told

    async def launch(
        self, name: str, argv: list[str], uid: int | None, limits: dict[str, float], control: socket.socket
    ) -> Launched:
        """Has a sandbox started; whether it came up is for its own control socket to say."""
        launched = self._launched[name] = Launched()
        request = {"op": "launch", "id": name, "argv": argv, "uid": uid, "limits": limits}
        try:
            await self._send(request, (control.fileno(),))
        except BaseException:
            del self._launched[name]
            raise
        return launched

    async def connect(self, name: str, program: str, uid: int | None, namespace: int) -> bool:
        """Opens the network of a sandbox with slirp4netns; false when it failed, and `Launched.log` will tell why."""
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
        """Ends a sandbox; nothing happens when it has ended."""
        launched = self._launched.get(name)
        if launched is not None:
            # From here on the counters also tell of what ends it.
            launched.counts, launched.killed = await self.usage(name), True
            await self._send({"op": "kill", "id": name})

    async def usage(self, name: str) -> Usage:
        """The limits that a sandbox has hit, and the processor time that it has used, so far.

        Every run asks twice, so this process reads the counters itself. Of a sandbox that has ended
        `Launched.counts` tells.
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
            # The launcher has removed the group, and says so next.
            await launched.exited.wait()
            return launched.counts

    async def serve(self) -> None:
        """Takes the launcher's reports until it is gone."""
        try:
            while True:
                packet, _ = await self._control.receive()
                self._take(json.loads(packet))
        except anyio.EndOfStream:
            pass
        finally:
            # Also when the server ends this: whoever waits for a sandbox's end must not wait for a report any more.
            self.gone = True
            self._ready.set()
            for launched in self._launched.values():
                launched.end()

    def close(self) -> None:
        """Lets go of the control socket, which ends the launcher and all its sandboxes."""
        self._control.close()

    def _take(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "ready":
                self.cgroups, self.lacking, self.shared = event["cgroups"], event["lacking"], event["shared"]
                first, count = event["uids"]
                self.uids = range(first, first + count)
                self.own_terminals = event["terminals"]
                self.places = {name: Path(place) for name, place in event["places"].items()}
                self._ready.set()
            case "exited":
                launched = self._launched.pop(event["id"])
                launched.log = event["log"]
                launched.counts = Usage(event["oom_kills"], event["pids_refused"], event["cpu"])
                launched.end()
            case "disconnected":
                _logger.warning("sandbox %s has lost its network: slirp4netns ended; open a new session", event["id"])
            case "launched":
                with contextlib.suppress(OSError):  # gone already: that it exited is what comes next
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
    """Starts a launcher that lives as long as the scope; its end is shielded and bounded."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    launcher = LauncherClient(ours)
    try:
        with theirs, anyio.CancelScope(shield=True):
            # Shielded: a start that is given up half way would leave a process that nobody knows.
            process = await anyio.open_process(
                own_programs.command(f"{__package__}.launcher", theirs.fileno()),
                stdin=None,
                stdout=None,
                stderr=None,
                env=own_programs.ENVIRONMENT,
                cwd=own_programs.FOLDER,
                pass_fds=(theirs.fileno(),),
            )
    except OSError as error:
        launcher.close()
        raise EngineUnavailable(f"the launcher of sandboxes does not start: {error.strerror}") from error
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


def launcher_gone() -> EngineUnavailable:
    """What is raised where it ended while it was asked."""
    return EngineUnavailable("the launcher of sandboxes has just ended; try again")
