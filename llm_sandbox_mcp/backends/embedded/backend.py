"""The embedded backend: sandboxes on bubblewrap, with no daemon."""

import itertools
import secrets
import shutil
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from ...base.errors import EngineUnavailable, ProfileError, StartFailed
from ...base.messages import Problem
from ...base.open_folders import View
from ...base.policy import Policy
from ...host.server_folder import is_alive, make_public, sweep
from .. import room
from ..base import Backend, Check, Layer, Sandbox, Surroundings, Usage, Zygote
from ..room import Room
from ..scanning import CLOSING
from . import bubblewrap, landlock, probe
from .cgroup_detect import detect
from .forking import Zygotes
from .keeping import EmbeddedLayer, Layers, fix
from .launching import Launched, LauncherClient, launcher_gone, open_launcher
from .sandbox import EmbeddedSandbox
from .showing import Mountable
from .staging import Stage, write_stage
from .uids import MOST

_TRIAL = Policy(
    memory=1 << 28, cpus=1, pids=16, disk=1 << 20, files=16, file_size=1 << 20, timeout=1, grace=1, cpu_time=1, output=1
)
"""For the first fork of all, if the widest policy is not known."""
_ROW = "zygotes"
_SHARED_ROW = "shared files"
_LEND = "lend more to the server's user in /etc/subuid and /etc/subgid"
_START = 20.0
"""Seconds for a sandbox to come up, which takes 15 ms on an idle machine."""
_FAILURES = 3
"""After so many launchers in a row that end before they are ready, no further one is started."""
_END = 2.0
"""Seconds for a sandbox to be gone; after that, the launcher keeps trying to end it."""


class EmbeddedBackend(Backend):
    """Sandboxes on bubblewrap; they see the handlers, environments and tools of the host, all read-only."""

    name = "embedded"

    def __init__(self, bwrap: str, slirp: str, surroundings: Surroundings, *, zygotes: bool) -> None:
        """`slirp` is the program that opens networks; empty if no policy will need an open network. `zygotes`: whether
        sandboxes may be forks of processes that wait."""
        self._bwrap = bwrap
        self._slirp = slirp
        self._surroundings = surroundings
        self._scope = AsyncExitStack()
        self._ready = anyio.Event()
        self._failure: EngineUnavailable | None = None
        self._launcher: LauncherClient | None = None
        self._reason = _reason(surroundings, wanted=zygotes)
        """Why sandboxes are not to be forks; empty if they are."""
        self.forks = not self._reason
        self._zygotes: Zygotes | None = None
        self._layers: Layers | None = None
        self._uids = itertools.count(secrets.randbelow(MOST))
        self._landlock = landlock.version()
        self._closing = anyio.CapacityLimiter(CLOSING)
        self._room = room.processes(), room.memory()
        self._mountable: dict[str, Mountable] = {}
        """The folders of the operator's that are mounted, by their names among the launcher's places."""

    async def __aenter__(self) -> "EmbeddedBackend":
        self._tasks = await self._scope.enter_async_context(anyio.create_task_group())
        # Runs in the background: a server answers its client before its engine is up.
        self._tasks.start_soon(self._serve)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._tasks.cancel_scope.cancel()
        await self._scope.aclose()

    async def probe(self) -> list[Check]:
        await self._ready.wait()
        launcher = self._launcher
        rows = [
            *await probe.checks(self._bwrap, launcher),
            await self.limits(),
            *await self._zygote_row(),
            *await self._shared_row(),
        ]
        return [*rows, *probe.open_network(self._slirp)] if self._slirp else rows

    async def _zygote_row(self) -> list[Check]:
        """Whether sandboxes are forks, and if not, why."""
        if self._launcher is None or self._launcher.gone:
            return []
        if not self.forks:
            return [Check(_ROW, "ok", f"off, {self._reason}; sandboxes start more slowly")]
        if not self._launcher.can_fork:
            return [Check(_ROW, "degraded", "off: they need a uid of their own, and only one is lent", _LEND)]
        obstacle = await self._zygotes.obstacle() if self._zygotes is not None else "the launcher has ended"
        if obstacle:
            fix = f"{probe.remedy()}; or set embedded.zygotes = false, and sandboxes start as they do now"
            return [Check(_ROW, "degraded", f"off, so that sandboxes start more slowly: {obstacle}", fix)]
        return [Check(_ROW, "ok", "on: each sandbox is a fork of a process that waits, Python's with its libraries")]

    async def _shared_row(self) -> list[Check]:
        """Whether sandboxes can share files, and if not, why; nothing where none is a fork, which has its own row."""
        if self._zygotes is None or await self._zygotes.obstacle():
            return []
        if obstacle := await self.unshared():
            detail = f"off, so that each sandbox has a copy of its state's files: {obstacle}"
            return [Check(_SHARED_ROW, "degraded", detail, fix(obstacle))]
        detail = "on: sandboxes of one prepared state share its files, and each has its own changes"
        return [Check(_SHARED_ROW, "ok", detail)]

    async def unshared(self) -> str:
        await self._ready.wait()
        if self._zygotes is None or self._layers is None:
            return "sandboxes are no forks"
        return await self._zygotes.obstacle() or await self._layers.obstacle()

    async def unforked(self, zygote: Zygote) -> str:
        zygotes = self._zygotes
        if zygotes is None or await zygotes.obstacle() or await zygotes.settled(zygote):
            return ""
        return zygotes.reasons.get(zygote, "the launcher has ended")

    def room(self) -> Sequence[Room]:
        count = len(self._launcher.uids) if self._launcher else 0
        uids = (Room("uids", count, "add ids in /etc/subuid and /etc/subgid"),) if count else ()
        return (*super().room(), *self._room, *uids)

    async def limits(self) -> Check:
        await self._ready.wait()
        return self._check_limits(self._launcher)

    async def obstacle(self) -> Problem | None:
        await self._ready.wait()
        return self._failure.problem if self._failure else None

    async def sweep(self) -> int:
        return await anyio.to_thread.run_sync(_sweep, self._surroundings.runtime.parent)

    @asynccontextmanager
    async def sandbox(
        self, policy: Policy, image: str = "", zygote: Zygote | None = None, layer: Layer | None = None
    ) -> AsyncIterator[Sandbox]:
        launcher, zygotes = await self._engine(), self._zygotes
        async with AsyncExitStack() as scope:
            failed: list[tuple[Zygote, EmbeddedLayer | None, str]] = []
            sandbox: EmbeddedSandbox | None = None
            for parent, name, shared in _forks(launcher, zygotes, zygote, layer):
                try:
                    sandbox = await scope.enter_async_context(self._opened(launcher, policy, name, shared))
                except StartFailed as error:
                    failed.append((parent, shared, error.cause))
                    continue
                sandbox.zygote = parent if parent.modules else None
                if zygotes is not None:
                    zygotes.worked(parent)
                break
            if sandbox is None:
                sandbox = await scope.enter_async_context(self._opened(launcher, policy))
            # Only now: another way has worked, so memory and processes do not lack. What fails only with a layer is no
            # fault of a zygote's.
            for parent, shared, cause in failed:
                if zygotes is not None and shared is sandbox.layer:
                    zygotes.failed(parent, cause)
            if isinstance(layer, EmbeddedLayer) and sandbox.layer is None:
                layer.missed(next((cause for _, shared, cause in failed if shared), "they are not kept any more"))
            yield sandbox

    @asynccontextmanager
    async def kept(self, sandbox: Sandbox) -> AsyncIterator[Layer | None]:
        if self._layers is None:
            yield None
            return
        async with self._layers.kept(sandbox) as layer:
            yield layer

    @asynccontextmanager
    async def _opened(
        self, launcher: LauncherClient, policy: Policy, parent: str = "", layer: EmbeddedLayer | None = None
    ) -> AsyncIterator[EmbeddedSandbox]:
        """A sandbox, as a fork of the zygote with this id if one is given, which can start with a layer."""
        name = secrets.token_hex(8)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        launched: Launched | None = None
        uid = launcher.uids[next(self._uids) % len(launcher.uids)] if launcher.uids else None

        async def usage() -> Usage:
            counts = await launcher.usage(name)
            return launched.counts if launched is not None and launched.exited.is_set() else counts

        kill, forked = partial(launcher.kill, name), bool(parent)
        sandbox = EmbeddedSandbox(name, policy, ours, usage, kill, self._closing, forked=forked, layer=layer)
        try:
            with theirs:
                if parent:
                    about = bubblewrap.about_fork(policy, lacking=launcher.lacking, landlock=self._landlock)
                    shared = layer.name if layer is not None else ""
                    launched = await launcher.fork(name, parent, uid, _limits(policy), about, theirs, shared)
                else:
                    views = self._views(launcher)
                    sandbox.mounted = tuple(view for view, folder in views.items() if folder is not None)
                    command = self._command(launcher, policy, views)
                    launched = await launcher.launch(name, command, uid, _limits(policy), theirs)
            self._tasks.start_soon(sandbox.serve)
            await self._await_start(launcher, sandbox, launched)
            if policy.network.mode == "open":
                await self._connect(launcher, sandbox, launched, uid)
            yield sandbox
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_END):
                await _end(launcher, name, launched)
            await sandbox.close()

    async def _serve(self) -> None:
        try:
            await self._keep_launcher()
        except EngineUnavailable as error:
            self._failure = error
        self._ready.set()

    async def _keep_launcher(self) -> None:
        """Keeps a launcher running, and starts another when one ends; `EngineUnavailable` if none can run."""
        obstacle = await anyio.to_thread.run_sync(probe.obstacle, self._bwrap)
        if obstacle is not None:
            raise EngineUnavailable(*obstacle)
        runtime = self._surroundings.runtime
        stage = await anyio.to_thread.run_sync(write_stage, runtime / "stage", self._surroundings.handlers)
        # Each alone: code must not see those of other servers.
        environments = {f"environment-{number}": path for number, path in enumerate(self._surroundings.environments)}
        shown = {"stage": stage.path, "tools": self._surroundings.tools, **environments}
        policy = self._surroundings.policy
        widest = _limits(policy) if policy else {}
        found = [await anyio.to_thread.run_sync(Mountable.find, view) for view in self._surroundings.views]
        self._mountable = {f"view-{number}": one for number, one in enumerate(found) if one is not None}
        views = {name: one.view.folder.path for name, one in self._mountable.items()}
        failures = 0
        while failures < _FAILURES:
            async with open_launcher() as launcher, anyio.create_task_group() as tasks:
                tasks.start_soon(self._follow, launcher)
                trial = probe.trial(self._bwrap)
                started = await launcher.start(runtime.name, runtime, shown, trial, widest, views)
                limits = self._check_limits(launcher)
                if started:
                    self._launcher = launcher
                if started and limits.state != "missing":
                    if self.forks and launcher.can_fork:
                        start, try_out = partial(self._zygote_command, launcher), partial(self._try_out, launcher)
                        self._zygotes = Zygotes(launcher, start, try_out, tasks)
                        self._layers = Layers(launcher, partial(self._bare_fork, launcher, self._zygotes), tasks)
                    self._ready.set()
                else:
                    tasks.cancel_scope.cancel()
            if started:
                limits.must_not_be_missing()
            failures = 0 if started else failures + 1
        raise EngineUnavailable("the sandbox launcher does not start", "see the server's log")

    async def _try_out(self, launcher: LauncherClient, name: str) -> None:
        async with self._opened(launcher, self._surroundings.policy or _TRIAL, name):
            pass

    @asynccontextmanager
    async def _bare_fork(
        self, launcher: LauncherClient, zygotes: Zygotes, layer: EmbeddedLayer | None
    ) -> AsyncIterator[EmbeddedSandbox]:
        obstacle = await zygotes.obstacle()
        parents = zygotes.parents(None)
        if obstacle or not parents:
            raise StartFailed(obstacle or "no process waits to be forked")
        async with self._opened(launcher, self._surroundings.policy or _TRIAL, parents[0][1], layer) as sandbox:
            yield sandbox

    async def _follow(self, launcher: LauncherClient) -> None:
        await launcher.serve()
        if self._launcher is launcher:
            # It has ended, and its sandboxes with it. From now on, a request for a sandbox waits for the next launcher.
            self._ready = anyio.Event()
            self._zygotes = self._layers = None

    def _check_limits(self, launcher: LauncherClient | None) -> Check:
        return self._surroundings.held(probe.limits(launcher))

    async def _engine(self) -> LauncherClient:
        await self._ready.wait()
        if self._failure is not None:
            raise self._failure
        if self._launcher is None or self._launcher.gone:  # the server is ending
            raise launcher_gone()
        return self._launcher

    async def _await_start(self, launcher: LauncherClient, sandbox: EmbeddedSandbox, launched: Launched) -> None:
        with anyio.move_on_after(_START) as deadline:
            await sandbox.up.wait()
            if sandbox.alive:
                return
            await launched.exited.wait()
        if deadline.cancelled_caught:
            raise StartFailed(
                f"the sandbox did not start within {_START:g} s", "check whether the machine is overloaded"
            )
        if launcher.gone:
            raise launcher_gone()
        raise StartFailed(
            f"the sandbox did not start: {launched.log or 'no reason given'}",
            "run `llm-sandbox-mcp doctor` for details",
        )

    async def _connect(
        self, launcher: LauncherClient, sandbox: EmbeddedSandbox, launched: Launched, uid: int | None
    ) -> None:
        with anyio.move_on_after(_START):
            if await launcher.connect(sandbox.id, shutil.which(self._slirp) or self._slirp, uid, sandbox.namespace):
                return
        await _end(launcher, sandbox.id, launched)
        if launcher.gone:
            raise launcher_gone()
        raise StartFailed(
            f"the sandbox's network did not open: {launched.log or 'no reason given'}",
            "run `llm-sandbox-mcp doctor` for details",
        )

    def _views(self, launcher: LauncherClient) -> dict[View, Path | None]:
        """For each folder of the operator's: where it can be mounted from; None if it is to be copied."""
        places = {one.view: launcher.places.get(name) for name, one in self._mountable.items() if one.current}
        return {view: places.get(view) for view in self._surroundings.views}

    def _command(self, launcher: LauncherClient, policy: Policy, views: Mapping[View, Path | None]) -> list[str]:
        return bubblewrap.command(
            self._program(),
            self._mounts(launcher, views),
            policy,
            interpreter=probe.INTERPRETER,
            lacking=launcher.lacking,
            landlock=self._landlock,
        )

    def _zygote_command(self, launcher: LauncherClient, zygote: Zygote) -> list[str]:
        mounts, environment = self._mounts(launcher, {}), dict(zygote.environment)
        return bubblewrap.zygote(self._program(), mounts, zygote.argv, environment)

    def _program(self) -> str:
        return shutil.which(self._bwrap) or self._bwrap

    def _mounts(self, launcher: LauncherClient, views: Mapping[View, Path | None]) -> bubblewrap.Mounts:
        stage = Stage(launcher.places["stage"])
        return bubblewrap.Mounts(
            etc=stage.etc,
            handlers=stage.handlers,
            environments={
                path.name: launcher.places[f"environment-{number}"]
                for number, path in enumerate(self._surroundings.environments)
            },
            tools={self._surroundings.tools.name: launcher.places["tools"]},
            init=stage.init,
            zygote=stage.zygote,
            resolving=stage.resolving,
            empty=stage.empty,
            terminals=stage.terminals if launcher.own_terminals else None,
            views={view.place: folder for view, folder in views.items()},
        )


def _forks(
    launcher: LauncherClient, zygotes: Zygotes | None, zygote: Zygote | None, layer: Layer | None
) -> list[tuple[Zygote, str, EmbeddedLayer | None]]:
    """The zygotes that a new sandbox could be a fork of, with their ids, and the layer that it starts with; best first:
    a sandbox without its files would take longer to get them than an interpreter to load its modules."""
    parents = zygotes.parents(zygote) if zygotes is not None else ()
    ways: list[tuple[Zygote, str, EmbeddedLayer | None]] = [(*parent, None) for parent in parents]
    if isinstance(layer, EmbeddedLayer) and layer.alive and layer.launcher is launcher:
        return [*((*parent, layer) for parent in parents), *ways]
    return ways


def _reason(surroundings: Surroundings, *, wanted: bool) -> str:
    if not wanted:
        return "as the profile says (embedded.zygotes)"
    if surroundings.open_network:
        return "since sandboxes have an open network, which forks cannot have"
    return "since sandboxes see folders of this machine, which forks cannot" if surroundings.views else ""


def _limits(policy: Policy) -> dict[str, float]:
    # The program that opens a network uses the sandbox's memory and CPUs, but must not take a process from the code.
    own = int(policy.network.mode == "open")
    return {"memory": policy.memory, "pids": policy.pids + own, "cpus": policy.cpus}


def open_embedded(bwrap: str, slirp4netns: str, surroundings: Surroundings, *, zygotes: bool = True) -> EmbeddedBackend:
    """The backend with these programs; `ProfileError` if the profile needs a network that is not available."""
    slirp = slirp4netns if surroundings.open_network else ""
    missing = next((row for row in probe.open_network(slirp) if row.state == "missing"), None) if slirp else None
    if missing is not None:
        raise ProfileError(f'"open" is not available here: {missing.detail}', missing.fix, key="network.mode")
    for folder in (*surroundings.environments, surroundings.tools):
        make_public(folder)
    return EmbeddedBackend(bwrap, slirp, surroundings, zygotes=zygotes)


async def _end(launcher: LauncherClient, name: str, launched: Launched | None) -> None:
    if launched is not None and not launched.exited.is_set():
        await launcher.kill(name)
        await launched.exited.wait()


def _sweep(root: Path) -> int:
    detect().sweep(lambda server_id: is_alive(root, server_id))
    return sweep(root)
