"""Sessions that start from a saved one, where the profile says so: from a state that its user has prepared."""

import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from weakref import WeakKeyDictionary

import anyio

from ..backends.base import Layer, Sandbox
from ..base.errors import (
    BadState,
    OutOfMemory,
    PolicyDenied,
    SandboxError,
    SandboxLost,
    StoreFailed,
    UnknownState,
    quoted,
)
from ..base.policy import Policy
from ..base.principal import USER
from ..base.results import Missing, OnProgress
from ..pool.leases import Started
from ..runs.interpreters import Interpreters
from ..state.manifest import Manifest
from ..state.streams import Reader
from .contents import Contents, lowered, notes_of
from .parts import Parts
from .shared_states import SharedStates

_LOOK = 10.0
"""Seconds between two looks whether another state has the name, as when another program has saved it."""
_AGAIN = 60.0
"""Seconds until sharing is tried again, as when the store did not answer."""

_log = logging.getLogger(__name__)


class Starts:
    """The saved sessions that others start from: one for each language at most. Sandboxes that wait have it open."""

    def __init__(self, parts: Parts, contents: Contents, states: SharedStates) -> None:
        self.names: Mapping[str, str] = parts.profile.starts
        """Their names, by language."""
        self._policy = parts.profile.policy()
        self._tasks = parts.tasks
        self._states = states
        self._pool = parts.pool
        self._saved = parts.saved
        self._contents = contents
        self._tags: dict[str, str] = {}
        """The oldest states that sandboxes which wait can have open, by language; empty for one that was not there."""
        self._replaced = defaultdict[str, anyio.Event](anyio.Event)
        """Set when another state has the name, by language."""
        self._shared = WeakKeyDictionary[Layer, tuple[Manifest, Sequence[Missing]]]()
        """The states that are in layers, and their files that could not be unpacked."""
        self._serving = False
        self._failing = False
        """Whether the last look failed, which the log says once."""
        if self.names:
            self._pool.start, self._pool.starting = self.open, self.names.keys()
            parts.tasks.start_soon(self._follow)

    def serve(self) -> None:
        """From now on, sandboxes share the files of large states, where the backend can do that."""
        if not self._serving:
            self._serving = True
            for language in self.names:
                self._tasks.start_soon(self._share, language)

    async def open(self, interpreters: Interpreters, language: str, on_progress: OnProgress | None = None) -> Started:
        """Opens the one of a language in a new sandbox.

        Raises `BadState` if it cannot be opened, and `StoreFailed`.
        """
        sandbox = interpreters.sandbox
        try:
            if sandbox.layer is None:
                manifest, missing = await self._unpack(sandbox, language)
            else:
                manifest, missing = self._shared[sandbox.layer]
            opened = await self._contents.use(interpreters, sandbox, manifest, missing, on_progress)
        except (BadState, UnknownState, PolicyDenied) as error:
            raise self._refused(language, error, sandbox.policy) from error
        except SandboxLost as error:
            reported = await sandbox.loss() or error
            if not isinstance(reported, OutOfMemory) and not (await sandbox.usage()).oom_kills:
                raise reported from error
            raise self._refused(language, OutOfMemory("there is not enough memory for it"), sandbox.policy) from error
        interpreters.ran.update(opened.kept)
        return Started(manifest.runs, [*notes_of(opened.missing), *opened.notes])

    def _refused(self, language: str, error: SandboxError, policy: Policy) -> BadState:
        cause = f"sessions of {language} start from a saved one, and that cannot be opened: {error.cause}"
        name, key = quoted(self.names[language]), f"languages.{language}.start"
        step = f"the operator can save one as {name} with a profile without {key}, or name another one there"
        if lowered(policy, self._policy):
            step = f"try again with no lower limits than the profile's; if that fails too, {step}"
        return BadState(cause, step)

    async def _unpack(self, sandbox: Sandbox, language: str) -> tuple[Manifest, Sequence[Missing]]:
        async with self._reading(language) as reader:
            return reader.manifest, await self._contents.unpack(sandbox, reader)

    @asynccontextmanager
    async def _reading(self, language: str) -> AsyncIterator[Reader]:
        name = self.names[language]
        tag = await self._saved.tag(USER, name)
        # An older one can still be open in another sandbox that waits; what cannot be opened is looked at, too.
        self._tags.setdefault(language, tag)
        async with self._saved.reading(USER, name) as reader:
            if reader.manifest.language != language:
                raise BadState(f"{quoted(name)} is a session of {quoted(reader.manifest.language, 40)}")
            yield reader

    async def _share(self, language: str) -> None:
        """Keeps the files of the state of a language, for all sandboxes; again when another takes its place."""
        while True:
            replaced = self._replaced[language] = anyio.Event()
            try:
                await self._share_until(replaced, language)
            except (BadState, UnknownState):  # who starts a session gets the same error
                await replaced.wait()
            except SandboxError as error:
                _log.debug("the state of %s is not shared yet: %s", language, error)
                with anyio.move_on_after(_AGAIN):
                    await replaced.wait()
            except Exception:
                _log.exception("the state of %s cannot be shared", language)
                await replaced.wait()

    async def _share_until(self, replaced: anyio.Event, language: str) -> None:
        async with AsyncExitStack() as scope:
            async with self._reading(language) as reader:
                shared = await scope.enter_async_context(self._states.of(reader, language, self._policy))
            if shared is not None:
                self._shared[shared.layer] = shared.manifest, shared.missing
                self._pool.layers[language, self._policy] = shared.layer
                self._pool.renew(language)
            try:
                await replaced.wait()
            finally:
                self._pool.layers.pop((language, self._policy), None)

    async def look(self) -> None:
        """Looks whether other states have these names now: sandboxes that wait are replaced then."""
        for language, tag in list(self._tags.items()):
            try:
                replaced = await self._saved.tag(USER, self.names[language]) != tag
            except StoreFailed as error:
                if not self._failing:
                    _log.warning(
                        "whether the state that sessions of %s start from was replaced is unknown: %s", language, error
                    )
                self._failing = True
                continue
            self._failing = False
            if replaced:
                self._tags.pop(language, None)
                self._pool.layers.pop((language, self._policy), None)
                self._replaced[language].set()
                self._pool.renew(language)

    async def _follow(self) -> None:
        while True:
            await anyio.sleep(_LOOK)
            for (language, _), layer in list(self._pool.layers.items()):
                if not layer.alive:  # what kept it has ended
                    self._replaced[language].set()
            await self.look()
