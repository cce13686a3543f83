"""The backend `auto`: the first engine that works here, chosen when an engine is first needed."""

import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import TaskGroup, TaskStatus

from ..aio.tasks import open_tasks
from ..base.errors import EngineUnavailable, SandboxError
from ..base.messages import Problem, joined
from ..base.policy import Policy
from ..base.results import OnProgress
from .base import Backend, Check, Images, Layer, Sandbox, Zygote
from .room import Room

AUTO = "auto"

_COMMANDS = "run one of: apt-get install bubblewrap; systemctl start docker; systemctl start podman.socket"
_PROGRAMS = "start Docker, or Podman's machine"
_HELP = f"{_COMMANDS if sys.platform == 'linux' else _PROGRAMS} (`llm-sandbox-mcp doctor` shows details)"


class Chosen(Backend):
    """Forwards everything to the first of several backends that works; while none does, each call tries them again."""

    name = AUTO

    def __init__(self, candidates: Mapping[str, Callable[[], Backend]], prefer: str) -> None:
        """`prefer` is opened together with this one, so that its engine starts at once; others only when tried."""
        self._candidates = candidates
        self._prefer = prefer
        self._open: dict[str, Backend] = {}
        self._choice: Backend | None = None
        self._choosing = anyio.Lock()
        self._done = anyio.Event()
        self._reasons: dict[str, Problem] = {}

    async def __aenter__(self) -> "Chosen":
        self._scope = open_tasks()
        self._tasks: TaskGroup = await self._scope.__aenter__()
        try:
            # An error is reported later, when a backend is chosen.
            with suppress(SandboxError):
                await self._opened(self._prefer)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._done.set()
        await self._scope.__aexit__(None, None, None)

    @property
    def images(self) -> Images | None:  # type: ignore[override]
        return self._choice.images if self._choice else None

    @property
    def forks(self) -> bool:  # type: ignore[override]
        return self._choice.forks if self._choice else False

    def image_of(self, language: str) -> str:
        return self._choice.image_of(language) if self._choice else ""

    def room(self) -> Sequence[Room]:
        return self._choice.room() if self._choice else super().room()

    async def chosen(self) -> Backend:
        async with self._choosing:
            if self._choice is None:
                self._choice = await self._choose()
            return self._choice

    async def limits(self) -> Check:
        try:
            return await (await self.chosen()).limits()
        except SandboxError as error:
            return Check("limits", "missing", *error.problem)

    async def probe(self) -> list[Check]:
        try:
            choice = await self.chosen()
        except EngineUnavailable:
            return [Check(name, "missing", *reason) for name, reason in self._reasons.items()]
        others = [f"{name} does not work: {joined(*reason)}" for name, reason in self._reasons.items()]
        return [Check("backend", "ok", "; ".join([f"{choice.name}, chosen by auto", *others])), *await choice.probe()]

    @asynccontextmanager
    async def sandbox(
        self, policy: Policy, image: str = "", zygote: Zygote | None = None, layer: Layer | None = None
    ) -> AsyncIterator[Sandbox]:
        async with (await self.chosen()).sandbox(policy, image, zygote, layer) as sandbox:
            yield sandbox

    @asynccontextmanager
    async def kept(self, sandbox: Sandbox) -> AsyncIterator[Layer | None]:
        async with (await self.chosen()).kept(sandbox) as layer:
            yield layer

    async def unforked(self, zygote: Zygote) -> str:
        return await (await self.chosen()).unforked(zygote)

    async def tell(self, on_progress: OnProgress) -> None:
        await (await self.chosen()).tell(on_progress)

    async def sweep(self) -> int:
        return await (await self.chosen()).sweep()

    async def _choose(self) -> Backend:
        self._reasons = {}
        for name in self._candidates:
            try:
                backend = await self._opened(name)
                reason = await backend.obstacle()
            except SandboxError as error:
                reason = error.problem
            if reason is None:
                return backend
            self._reasons[name] = reason
        reasons = "; ".join(f"{name}: {reason.cause}" for name, reason in self._reasons.items())
        raise EngineUnavailable(f"no engine works here: {reasons}", _HELP)

    async def _opened(self, name: str) -> Backend:
        if name not in self._open:
            self._open[name] = await self._tasks.start(self._keep_open, self._candidates[name])
        return self._open[name]

    async def _keep_open(self, make: Callable[[], Backend], *, task_status: TaskStatus[Backend]) -> None:
        """Keeps a backend open in its own task: a backend must be left in the task that entered it."""
        async with make() as backend:
            task_status.started(backend)
            await self._done.wait()
