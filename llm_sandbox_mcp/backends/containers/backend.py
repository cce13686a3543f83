"""Sandboxes that are containers of an engine."""

import contextlib
import platform
import secrets
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from ...base.errors import CapacityReached, EngineUnavailable, SandboxError, SandboxLost, StartFailed
from ...base.policy import Policy
from ...host.server_folder import is_alive
from ..base import Backend, Check, Layer, Sandbox, Surroundings, Zygote
from ..layout import ALIAS_FOLDER, DATA, HANDLERS, alias_beside
from ..scanning import CLOSING
from .agent import AGENT, ALIAS_BYTES, HANDLERS_BYTES, pack_handlers
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
"""Seconds since 1970 after which a server on any other machine may remove the container."""

_ANYONE = "1000:1000"
"""The user in a container that somebody else made, if the profile names none."""
_DAY = 86_400
_BEAT = 30.0
_SILENT = 2
"""Minutes without a beat after which a server on another machine is considered gone."""
_AGAIN = 5.0
"""Seconds between two checks for containers that an engine may have made."""
_CERTAIN = 6
"""Checks after which it is certain that the engine makes no such container any more."""
_THREADS = 16
_OWN_PROCESSES = 4
"""The init process, the agent, and the commands that the agent starts."""


class ContainerBackend(Backend):
    """The backend on one engine; leaving it ends every container that still exists."""

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
        """The uids that containers can have; empty until the engine has been queried."""
        self._live: set[ContainerSandbox] = set()
        self._left = anyio.Event()
        """Set when one of the live sandboxes is gone."""
        self._doubtful: dict[str, int] = {}
        """Containers that may exist, by name, and how often the engine has listed its containers since."""
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
            return Check("limits", "missing", *error.problem)

    async def probe(self) -> list[Check]:
        try:
            engine = await self._connected()
            version = await self._in_thread(engine.version)
        except SandboxError as error:
            return [Check(self.name, "missing", *error.problem)]
        rows = [Check(self.name, "ok", f"{version} at {engine.address}"), await self.limits()]
        try:
            return rows + await self._in_thread(lambda: [*engine.checks()])
        except SandboxError as error:
            return [*rows, Check(self.name, "missing", *error.problem)]

    async def sweep(self) -> int:
        engine = await self._connected()
        removed = 0
        for found in await self._in_thread(lambda: engine.find(LABEL)):
            if await self._is_orphan(engine, found):
                await self._in_thread(partial(engine.remove, found.id))
                removed += 1
        return removed

    async def _is_orphan(self, engine: Engine, found: Found) -> bool:
        """Whether the server of a container is gone: its lock shows it on this machine, missing beats on another."""
        server = found.labels.get(LABEL, "")
        if found.labels.get(_MACHINE) == self._machine:
            return server != self._runtime.name and not is_alive(self._runtime.parent, server)
        question = ("find", f"{HANDLERS}/.beat", "-mmin", f"+{_SILENT}")
        with contextlib.suppress(SandboxLost, StartFailed):
            return bool(await ask(self._container(engine, found.id, found.labels.get(_USER, _ANYONE)), question))
        # The container does not answer: it has ended, or was never started.
        return float(found.labels.get(_EXPIRES) or 0) < time.time()

    @asynccontextmanager
    async def sandbox(
        self, policy: Policy, image: str = "", zygote: Zygote | None = None, layer: Layer | None = None
    ) -> AsyncIterator[Sandbox]:
        engine = await self._connected()
        joined = self._settings.join
        user = self._settings.user or (_ANYONE if joined else await self._own_user(engine))
        recipe = self._recipe(policy, image or self.image_of("python"), user)
        while joined and self._live:
            if not all(sandbox.leaving for sandbox in self._live):
                raise CapacityReached(f"container {joined} serves one session at a time", "close the other session")
            await self._left.wait()
        if not joined:
            await self._images.ensure(recipe.image)
        try:
            # The worker thread is never abandoned: a container made while the caller is cancelled would have no owner.
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
                    sandbox.outside = look(state.pid, container, self._folders, policy.memory, self._closing)
                try:
                    yield sandbox
                finally:
                    sandbox.leaving = True
        finally:
            self._live.discard(sandbox)
            self._left.set()
            self._left = anyio.Event()

    @property
    def _folders(self) -> tuple[str, ...]:
        return (*FOLDERS, DATA) if self._surroundings.views else FOLDERS

    async def _own_user(self, engine: Engine) -> str:
        """A user for one container only: some limits are counted per user."""
        if not self._users:
            self._users = await self._in_thread(engine.users)
        uid = secrets.choice(self._users)
        return f"{uid}:{uid}"

    def _recipe(self, policy: Policy, image: str, user: str) -> Recipe:
        expires = str(int(time.time()) + _DAY)
        alias = alias_beside(mount.target for mount in self._settings.mounts)
        places = {**dict.fromkeys(self._folders, policy.disk), HANDLERS: HANDLERS_BYTES}
        return Recipe(
            name=f"sandbox-{secrets.token_hex(8)}",
            image=image,
            command=("/bin/sh", "-c", AGENT, "agent", "ours", "", alias),
            user=user,
            labels={LABEL: self._runtime.name, _MACHINE: self._machine, _EXPIRES: expires, _USER: user},
            folders={**places, ALIAS_FOLDER: ALIAS_BYTES} if alias else places,
            memory=policy.memory,
            cpus=policy.cpus,
            pids=policy.pids + _OWN_PROCESSES,
            files=dict.fromkeys(self._folders, policy.files),
            file_size=policy.largest_file,
            runtime=self._settings.runtime,
            mounts=self._settings.mounts,
            gpus=self._settings.gpus,
            network=policy.network.mode == "open",
        )

    def _container(self, engine: Engine, container: str, user: str) -> EngineContainer:
        return EngineContainer(engine, container, user, self._threads)

    async def _connected(self) -> Engine:
        """The engine; every call searches for it until it is found, since it may be started later."""
        if self._engine is None:
            found = await self._in_thread(self._find)
            if self._surroundings.require_limits:  # else skip a query that takes long, or is forbidden
                try:
                    (await self._limits(found)).must_not_be_missing()
                except BaseException:
                    with anyio.CancelScope(shield=True):
                        await self._in_thread(found.close)
                    raise
            if self._engine is None:
                self._engine = found
            else:  # another task was faster
                await self._in_thread(found.close)
        return self._engine

    async def _limits(self, engine: Engine) -> Check:
        if joined := self._settings.join:
            other = f"container {joined} has its own limits, not those of the profile"
            limits = Check("limits", "degraded", other, "remove containers.join from the profile")
        else:
            limits = await self._in_thread(engine.limits)
        return self._surroundings.held(limits)

    def _doubt(self, engine: Engine, name: str) -> None:
        """Records a container that an engine may have made, or may still make, although it did not answer."""
        self._doubtful[name] = 0
        if len(self._doubtful) == 1:
            self._tasks.start_soon(self._remove_doubtful, engine)

    async def _remove_doubtful(self, engine: Engine) -> None:
        """Removes such containers, until the engine has answered so often that it certainly makes no more of them."""
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
        """Signals all agents regularly that the server is alive."""
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
        # Attach before the container starts: otherwise the first output could be missed.
        connected = engine.connect()
        agent = upgrade(connected, engine.attach_path(container))
        try:
            engine.start(container, recipe)
        except BaseException:
            connected.close()  # not `agent`: only the event loop may close that, and this is a worker thread
            raise
    except Refused as error:
        # Podman prepares the start when it attaches, so this is a failed start.
        engine.remove(container)
        raise engine.refused(f"starting a container of {recipe.image}", str(error), recipe.step) from error
    except BaseException:
        engine.remove(container)
        raise
    return container, agent


def _join(engine: Engine, container: str, recipe: Recipe) -> tuple[str, Connection]:
    try:
        if not engine.state(container).running:
            raise StartFailed(f"container {container} is not running on {engine.name}", "start it")
        _, agent = start(engine, container, [*recipe.command, "joined"], recipe.user)
    except SandboxLost as error:
        raise StartFailed(
            f"{engine.name} at {engine.address} has no container {container}", "check containers.join in the profile"
        ) from error
    return container, agent


def _machine() -> str:
    """An id shared by all servers whose locks are visible from here; it changes with each boot."""
    if sys.platform == "linux":
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        asked = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    return platform.node()
