"""Sandboxes that are containers of an engine."""

import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from ...errors import CapacityReached, EngineUnavailable, SandboxError, SandboxLost, StartFailed
from ...policy import Policy
from ...runtime import is_alive
from ..base import Backend, Check, Sandbox, Surroundings, halves
from ..layout import HANDLERS
from ..scanning import CLOSING
from .agent import AGENT, HANDLERS_BYTES, pack_handlers
from .conversation import ask
from .engine import Engine, Found, Recipe
from .engine_container import EngineContainer, start
from .images import ContainerImages
from .outside import look
from .removal import owned
from .sandbox import FOLDERS, ContainerSandbox
from .settings import Containers
from .streams import Attached, Connection, Refused, upgrade

T = TypeVar("T")

LABEL = "llm-sandbox-mcp.server"
"""The id of the server that owns a container."""
_MACHINE = "llm-sandbox-mcp.machine"
_USER = "llm-sandbox-mcp.user"
_EXPIRES = "llm-sandbox-mcp.expires"
"""Seconds since 1970 after which a server of any other machine may remove it."""

_ANYONE = "1000:1000"
"""In a container that others made, where nothing names a user."""
_DAY = 86_400
_BEAT = 30.0
_SILENT = 2
"""Minutes without a beat after which a server of another machine is taken for gone."""
_AGAIN = 5.0
"""Seconds between two looks for what an engine may have made."""
_CERTAIN = 6
"""Looks after which it is certain."""
_THREADS = 16
_OWN_PROCESSES = 4
"""The init, the agent, and what the agent starts."""


class ContainerBackend(Backend):
    """The backend on one engine; leaving it ends every container that is still there."""

    def __init__(self, name: str, find: Callable[[], Engine], settings: Containers, surroundings: Surroundings) -> None:
        self.name = name
        self._find = find
        self._settings = settings
        self.environment = settings.environment
        self.images = self._images = ContainerImages(settings, surroundings, self._connected)
        self._surroundings = surroundings
        self._runtime = surroundings.runtime
        self._machine = _machine()
        self._handlers = pack_handlers(surroundings.handlers)
        self._threads = anyio.CapacityLimiter(_THREADS)
        self._closing = anyio.CapacityLimiter(CLOSING)
        self._engine: Engine | None = None
        self._users = range(0)
        """The uids that containers can have, once the engine was asked."""
        self._live: set[ContainerSandbox] = set()
        self._left = anyio.Event()
        """Set when one of them is gone."""
        self._doubtful: dict[str, int] = {}
        """Containers that may be there, and how often the engine has said since that none is."""
        self._tasks: TaskGroup

    async def __aenter__(self) -> "ContainerBackend":
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._beat)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)
        if self._engine is not None:
            self._engine.close()

    def image_of(self, language: str) -> str:
        return self._settings.join or self._settings.name(language)

    async def limits(self) -> Check:
        try:
            engine = await self._connected()
            return await self._limits(engine)
        except SandboxError as error:
            return Check("limits", "missing", *halves(str(error)))

    async def probe(self) -> list[Check]:
        try:
            engine = await self._connected()
            version = await self._in_thread(engine.version)
        except SandboxError as error:
            return [Check(self.name, "missing", *halves(str(error)))]
        rows = [Check(self.name, "ok", f"{version} at {engine.address}"), await self.limits()]
        try:
            return rows + await self._in_thread(lambda: [*engine.checks()])
        except SandboxError as error:
            return [*rows, Check(self.name, "missing", *halves(str(error)))]

    async def sweep(self) -> int:
        engine = await self._connected()
        removed = 0
        for found in await self._in_thread(lambda: engine.find(LABEL)):
            if await self._is_orphan(engine, found):
                await self._in_thread(partial(engine.remove, found.id))
                removed += 1
        return removed

    async def _is_orphan(self, engine: Engine, found: Found) -> bool:
        """Whether the server of a container is gone: by its lock on this machine, by its silence on another."""
        server = found.labels.get(LABEL, "")
        if found.labels.get(_MACHINE) == self._machine:
            return server != self._runtime.name and not is_alive(self._runtime.parent, server)
        question = ("find", f"{HANDLERS}/.beat", "-mmin", f"+{_SILENT}")
        with contextlib.suppress(SandboxLost, StartFailed):
            return bool(await ask(self._container(engine, found.id, found.labels.get(_USER, _ANYONE)), question))
        # It does not answer: it has ended, or was never started.
        return float(found.labels.get(_EXPIRES) or 0) < time.time()

    @asynccontextmanager
    async def sandbox(self, policy: Policy, image: str = "") -> AsyncIterator[Sandbox]:
        engine = await self._connected()
        joined = self._settings.join
        user = self._settings.user or (_ANYONE if joined else await self._own_user(engine))
        recipe = self._recipe(policy, image or self.image_of("python"), user)
        while joined and self._live:
            if not all(sandbox.leaving for sandbox in self._live):
                raise CapacityReached(f"container {joined} serves one session at a time; close the other one")
            await self._left.wait()
        if not joined:
            await self._images.ensure(recipe.image)
        try:
            # A worker thread is never given up: a container made while the caller goes away would be nobody's.
            container, agent = await self._in_thread(
                lambda: _join(engine, joined, recipe) if joined else _make(engine, recipe)
            )
        except StartFailed:
            self._images.forget(recipe.image)
            raise
        except EngineUnavailable:
            if not joined:
                self._doubt(engine, recipe.name)
            raise
        sandbox = ContainerSandbox(
            self._container(engine, container, recipe.user),
            Attached(agent),
            policy,
            recipe.image,
            prefix=self._settings.prefix,
            joined=bool(joined),
        )
        self._live.add(sandbox)
        try:
            async with owned(sandbox, self._tasks):
                await sandbox.begin(self._handlers)
                if engine.local:
                    state = await self._in_thread(lambda: engine.state(container))
                    sandbox.outside = look(state.pid, container, FOLDERS, policy.memory, self._closing)
                try:
                    yield sandbox
                finally:
                    sandbox.leaving = True
        finally:
            self._live.discard(sandbox)
            self._left.set()
            self._left = anyio.Event()

    async def _own_user(self, engine: Engine) -> str:
        """A user of one container alone: some limits are counted by user."""
        if not self._users:
            self._users = await self._in_thread(engine.users)
        uid = secrets.choice(self._users)
        return f"{uid}:{uid}"

    def _recipe(self, policy: Policy, image: str, user: str) -> Recipe:
        expires = str(int(time.time()) + _DAY)
        return Recipe(
            name=f"sandbox-{secrets.token_hex(8)}",
            image=image,
            command=("/bin/sh", "-c", AGENT, "agent"),
            user=user,
            labels={LABEL: self._runtime.name, _MACHINE: self._machine, _EXPIRES: expires, _USER: user},
            folders={**dict.fromkeys(FOLDERS, policy.disk), HANDLERS: HANDLERS_BYTES},
            memory=policy.memory,
            cpus=policy.cpus,
            pids=policy.pids + _OWN_PROCESSES,
            files=dict.fromkeys(FOLDERS, policy.files),
            file_size=policy.largest_file,
            runtime=self._settings.runtime,
            mounts=self._settings.mounts,
            gpus=self._settings.gpus,
            network=policy.network.mode == "open",
        )

    def _container(self, engine: Engine, container: str, user: str) -> EngineContainer:
        return EngineContainer(engine, container, user, self._threads)

    async def _connected(self) -> Engine:
        """The engine; looked for anew as long as there is none, for it may be started later."""
        if self._engine is None:
            found = await self._in_thread(self._find)
            if self._surroundings.require_limits:  # or it is spared a question that takes long, or is forbidden
                try:
                    (await self._limits(found)).must_not_be_missing()
                except BaseException:
                    with anyio.CancelScope(shield=True):
                        await self._in_thread(found.close)
                    raise
            if self._engine is None:
                self._engine = found
            else:  # another was as fast
                await self._in_thread(found.close)
        return self._engine

    async def _limits(self, engine: Engine) -> Check:
        if joined := self._settings.join:
            other = f"container {joined} has the limits that it was given"
            limits = Check("limits", "degraded", other, "leave containers.join out of the profile")
        else:
            limits = await self._in_thread(engine.limits)
        return self._surroundings.held(limits)

    def _doubt(self, engine: Engine, name: str) -> None:
        """Notes a container that an engine which did not answer may have made all the same, or may yet make."""
        self._doubtful[name] = 0
        if len(self._doubtful) == 1:
            self._tasks.start_soon(self._remove_doubtful, engine)

    async def _remove_doubtful(self, engine: Engine) -> None:
        """Removes them until the engine has answered for so long that it makes none any more."""
        while self._doubtful:
            await anyio.sleep(_AGAIN)
            looked_for = [*self._doubtful]
            with contextlib.suppress(SandboxError):
                for found in await self._in_thread(lambda: engine.find(LABEL)):
                    if found.name in looked_for:
                        await self._in_thread(partial(engine.remove, found.id))
                for name in looked_for:
                    self._doubtful[name] += 1
                    if self._doubtful[name] > _CERTAIN:
                        del self._doubtful[name]

    async def _beat(self) -> None:
        """Tells all agents that the server lives."""
        while True:
            await anyio.sleep(_BEAT)
            for sandbox in [*self._live]:
                if sandbox.begun:
                    with anyio.move_on_after(1):
                        await sandbox.beat()

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(call, limiter=self._threads)


def _make(engine: Engine, recipe: Recipe) -> tuple[str, Connection]:
    container = engine.create(recipe)
    try:
        # Attached before it starts, or its first words could be missed.
        connected = engine.connect()
        agent = upgrade(connected, engine.attach_path(container))
        try:
            engine.start(container, recipe)
        except BaseException:
            connected.close()  # not the agent's, for that is the event loop's, and this is a thread
            raise
    except Refused as error:
        # Podman makes all ready for the start then.
        engine.remove(container)
        raise engine.refused(f"starting a container of {recipe.image}", str(error), recipe.step) from error
    except BaseException:
        engine.remove(container)
        raise
    return container, agent


def _join(engine: Engine, container: str, recipe: Recipe) -> tuple[str, Connection]:
    try:
        if not engine.state(container).running:
            raise StartFailed(f"container {container} does not run on {engine.name}; start it")
        _, agent = start(engine, container, [*recipe.command, "joined"], recipe.user)
    except SandboxLost as error:
        raise StartFailed(
            f"{engine.name} at {engine.address} has no container {container}; see containers.join in the profile"
        ) from error
    return container, agent


def _machine() -> str:
    """What is the same for all servers whose locks can be seen from here, until the next boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
