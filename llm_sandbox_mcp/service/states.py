"""Saves sessions under a name, opens them again, and branches them: as a copy by value, never as a live process."""

from collections.abc import Sequence
from contextlib import AsyncExitStack

import anyio
from anyio.abc import TaskGroup

from ..aio.tasks import open_tasks
from ..backends.base import Sandbox
from ..base.errors import InvalidArgument, PolicyDenied, quoted
from ..base.principal import ANONYMOUS, Principal
from ..base.results import OnProgress, Opened, SavedSession
from ..sessions.session import Session
from ..state.saved import checked_name
from ..state.streams import Reader
from .contents import Contents
from .parts import Parts
from .preparation import Preparation
from .shared_states import Shared, SharedStates
from .starts import Starts

_FRESH = "run code in it first"
_AT_ONCE = 32
"""Sessions that are opened at once from the same state."""


class States:
    """The saved sessions of all callers."""

    def __init__(
        self, parts: Parts, preparation: Preparation, contents: Contents, shared: SharedStates, starts: Starts
    ) -> None:
        self._languages = parts.languages
        self._live = parts.live
        self._saved = parts.saved
        self._preparation = preparation
        self._contents = contents
        self._shared = shared
        self._starts = starts

    async def save(self, caller: Principal, session_id: str, name: str, *, tmp: bool = False) -> SavedSession:
        """Saves the variables, files, libraries and artifacts of a session, which goes on unchanged.

        A state of that name is replaced, as a whole. `tmp`: also the files in /tmp. Variables and files that cannot be
        kept are named in the result, and cost no others.
        """
        _check_known(caller)
        checked_name(name)
        session = self._live.get(session_id)
        async with session.exclusive():
            sandbox = await _with_state(session)
            async with self._saved.writing(caller, name) as writer:
                saved = await self._contents.write(session, sandbox, writer, name, tmp=tmp)
        await self._starts.look()
        return saved

    async def open(self, caller: Principal, name: str, on_progress: OnProgress | None = None) -> Opened:
        """Opens a saved session as a new one, within the limits of today's profile; the saved one stays.

        Raises `UnknownState`, and `BadState` if it is damaged or does not fit.
        """
        _check_known(caller)
        async with self._saved.reading(caller, name) as reader:
            language, policy = self._contents.frame(reader.manifest)
            session = self._live.open(language, policy, caller, empty=True)
            try:
                async with session.exclusive():
                    sandbox = await self._preparation.sandbox(session, self._languages[language], on_progress)
                    return await self._contents.read(session, sandbox, reader, on_progress)
            except BaseException:
                self._drop(session)
                raise

    async def open_many(
        self, caller: Principal, name: str, count: int, on_progress: OnProgress | None = None
    ) -> Sequence[Opened]:
        """Opens a saved session as so many new ones, without its artifacts; raises as `open` does.

        If one of them cannot be opened, none is. What is read of a small state is read once, and of a large one the
        files are shared where that is possible.
        """
        _check_known(caller)
        if count < 1:
            raise InvalidArgument(f"count must be at least 1, not {count}")
        sessions, opened, failed = list[Session](), dict[Session, Opened](), list[Exception]()
        limiter = anyio.CapacityLimiter(_AT_ONCE)

        async def open_one(session: Session, reader: Reader, shared: Shared | None, opening: TaskGroup) -> None:
            try:
                async with limiter:
                    opened[session] = await self._start(session, reader, shared)
                if on_progress is not None:
                    await on_progress(f"opened {len(opened)} of {count}")
            except Exception as error:  # it is raised below, unwrapped
                failed.append(error)
                opening.cancel_scope.cancel()

        async def drop_unless_opened() -> None:
            """So that nobody waits for code to stop whose state nobody needs any more."""
            try:
                await anyio.sleep_forever()
            finally:
                for session in sessions if len(opened) < count else ():
                    self._drop(session)

        async with AsyncExitStack() as scope:
            reader = await scope.enter_async_context(self._saved.reading(caller, name))
            language, policy = self._contents.frame(reader.manifest)
            self._live.check_room(count)
            shared = None
            if count > 1:
                shared = await scope.enter_async_context(self._shared.of(reader, language, policy))
            layer = shared.layer if shared is not None else None
            try:
                for _ in range(count):
                    sessions.append(self._live.open(language, policy, caller, empty=True, layer=layer))
                    sessions[-1].join()  # otherwise it would make room for the next one
                reader.share()
                async with open_tasks() as opening:
                    opening.start_soon(drop_unless_opened)
                    async with open_tasks() as tasks:
                        for session in sessions:
                            tasks.start_soon(open_one, session, reader, shared, opening)
                    opening.cancel_scope.cancel()
                if failed:
                    raise failed[0]
            except BaseException:
                for session in sessions:
                    self._drop(session)
                raise
            finally:
                for session in sessions:
                    session.leave()
        return [opened[session] for session in sessions]

    async def _start(self, session: Session, reader: Reader, shared: Shared | None) -> Opened:
        """Opens a saved session, but for its artifacts, in one of many."""
        async with session.exclusive():
            sandbox = await self._preparation.sandbox(session, self._languages[session.language], None)
            missing = shared.missing if shared is not None and sandbox.layer is shared.layer else None
            return await self._contents.read_bare(session, sandbox, reader, None, missing)

    async def branch(self, caller: Principal, session_id: str, on_progress: OnProgress | None = None) -> Opened:
        """Opens a second session that starts where this one stands, with /tmp; both go on separately."""
        session = self._live.get(session_id)
        async with session.exclusive():
            sandbox = await _with_state(session)
            second = self._live.open(session.language, session.policy, caller, empty=True)
            try:
                async with second.exclusive():
                    language = self._languages[session.language]
                    new = await self._preparation.sandbox(second, language, on_progress)
                    return await self._contents.copy(session, sandbox, second, new, on_progress)
            except BaseException:
                self._drop(second)
                raise

    async def saved(self, caller: Principal) -> tuple[SavedSession, ...]:
        """The saved sessions of a caller, the latest first."""
        _check_known(caller)
        return tuple([one.described() for one in await self._saved.all(caller)])

    async def delete(self, caller: Principal, name: str) -> None:
        """Deletes a saved session with all of its bytes; live sessions stay."""
        _check_known(caller)
        await self._saved.delete(caller, name)
        await self._starts.look()

    @property
    def place(self) -> str:
        """Where they are kept."""
        return self._saved.place

    async def check(self) -> None:
        """Raises `StoreFailed` if nothing can be saved there, opened or removed."""
        await self._saved.check()

    async def use(self, caller: Principal) -> str:
        """How much a caller has saved, against the bounds, in words."""
        return await self._saved.use(caller)

    def _drop(self, session: Session) -> None:
        if not session.closed:
            self._live.close(session.id)


async def _with_state(session: Session) -> Sandbox:
    """The sandbox of a session; `InvalidArgument` if there is nothing in it that could be saved."""
    if session.has_state:
        sandbox = await session.sandbox()  # which also finds out which interpreters have ended
        if session.has(sandbox) and (session.news.loss is None or session.news.loss.language):
            return sandbox
    raise InvalidArgument(f"session {quoted(session.id, 40)} has no state that could be saved", _FRESH)


def _check_known(caller: Principal) -> None:
    if caller == ANONYMOUS:
        raise PolicyDenied(
            "sessions are saved only for callers that the server knows", "the operator can set http.token_file"
        )
