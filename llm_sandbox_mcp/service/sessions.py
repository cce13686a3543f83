"""Sessions as callers use them: they open, list, interrupt, reset and close them by id."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import anyio

from ..base.errors import EngineUnavailable, InvalidArgument, StoreFailed, UnknownSession, quoted
from ..base.messages import Note, Step
from ..base.policy import narrow
from ..base.principal import Principal
from ..base.results import SessionInfo
from ..sessions.session import Session
from .ask import Checked
from .keeping import Keeping
from .parts import Parts
from .preparation import Preparation
from .views import Views
from .work import Work

_ENDING = 10.0
"""Seconds for what has to be saved before a session ends."""


class Sessions:
    """The sessions of all callers. Methods that take an id raise `UnknownSession`."""

    def __init__(self, parts: Parts, preparation: Preparation, views: Views, keeping: Keeping) -> None:
        self._policy = parts.profile.policy()
        self._languages = parts.languages
        self._backend = parts.backend
        self._live = parts.live
        self._store = parts.store
        self._preparation = preparation
        self._views = views
        self._keeping = keeping

    def open(self, caller: Principal, language: str = "python", limits: Mapping[str, float] | None = None) -> str:
        """Opens an empty session, such as for files that the first run in the language needs, and returns its id.

        `limits` lowers the limits of all its runs, and of its sandbox.
        """
        return self._live.open(self._languages[language].name, narrow(self._policy, limits or {}), caller).id

    def of(self, checked: Checked) -> Session:
        """The session that an ask names, or a new one, which has the limits that the ask lowers."""
        ask = checked.ask
        lower = ask.limits_of_sandbox
        if not ask.session_id:
            return self._live.open(checked.language.name, narrow(self._policy, lower), ask.caller)
        if lower:
            limits = ", ".join(sorted(lower))
            raise InvalidArgument(f"{limits} can be lowered for a new session only", Step.OPEN_SESSION)
        return self._live.get(ask.session_id)

    def is_open(self, session_id: str) -> bool:
        """Whether there is a live session of that id."""
        return session_id in self._live

    def list(self) -> tuple[SessionInfo, ...]:
        """All live sessions, oldest first."""
        return self._live.infos()

    async def interrupt(self, session_id: str) -> bool:
        """Stops the work that has the session's turn, code or an installation, and returns whether there is any.

        The state is kept if code answers the interrupt.
        """
        return self._live.get(session_id).stop()

    async def clear(self, session_id: str) -> None:
        """Deletes the artifacts of a session, even if it has ended, and empties its folder of figures; state stays."""
        try:
            session = self._live.get(session_id)
        except UnknownSession:
            if not self._store.of_session(session_id):
                raise
            await self._store.clear(session_id)
            return
        async with session.exclusive():
            if session.put_aside is not None:  # its artifacts, too
                await session.sandbox()
            await session.clear_figures()
            await self._store.clear(session_id)

    async def refresh(self, session_id: str, language: str = "python", *, pause: float = 0.0) -> None:
        """Starts a sandbox if there is none, and an interpreter that has run nothing yet; files and libraries stay.

        The next run finds them ready: it waits for this method, even during the `pause` in seconds before the start.
        Raises the same errors as a run that cannot start.
        """
        chosen = self._languages[language]
        session = self._live.get(session_id)
        async with session.exclusive():
            if pause:
                await anyio.sleep(pause)
            await session.refresh(await self._preparation.places(chosen))

    async def restart(self, session_id: str) -> None:
        """Ends the interpreters of a session, stopping what runs in it; files and libraries stay."""
        session = self._live.get(session_id)
        session.stop()
        async with session.exclusive():
            if session.put_aside is not None:  # its files stay
                await session.sandbox()
            await session.restart()

    async def reset(self, session_id: str) -> Sequence[Note]:
        """Drops all state of a session, stopping what runs in it; its id stays. Returns the same notes as `close`."""
        session = self._live.get(session_id)
        notes = await self._end(session)
        async with session.exclusive():
            session.reset()
            await self._keeping.forget(session)
        return notes

    async def close(self, session_id: str) -> Sequence[Note]:
        """Ends a session, stopping what runs in it; its artifacts stay.

        Returns notes about what its code has changed since the last run in folders that are open for writing.
        """
        session = self._live.get(session_id)
        try:
            return await self._end(session)
        finally:
            if not session.closed:
                self._live.close(session_id)
            await self._keeping.forget(session)

    async def _end(self, session: Session) -> Sequence[Note]:
        """Stops what runs in a session, and saves what is not saved yet, if that is possible soon."""
        session.stop()
        notes: list[Note] = []
        if not self._views.writable:
            return notes
        done = False
        with anyio.move_on_after(_ENDING), suppress(EngineUnavailable):
            async with session.exclusive():
                if session.has_sandbox:
                    notes += await self._views.save_rest(await session.sandbox())
            done = True
        if not done:
            notes += await self._views.save(None, whole=False, last=True)
        return notes

    async def commit(self, session_id: str, image: str) -> str:
        """Makes an image of a session's files and libraries, a template, and returns its name with its tag.

        New sandboxes use the image if the profile names it in `containers.images`. The session goes on unchanged, and
        the image stays when the session ends. Variables, figures, /tmp and processes are not included. Only this call
        makes templates, and tools do not offer it. Raises `InvalidArgument` if the engine has no images, if the name is
        not valid for an image, or if it belongs to an image that is not a template; `CapacityReached` if there are as
        many templates as `containers.templates` allows; and `StartFailed`.
        """
        backend = await self._backend.chosen()
        if backend.images is None:
            raise InvalidArgument(
                f"the backend {backend.name} has no images", "name docker or podman in backend.name of the profile"
            )
        session = self._live.get(session_id)
        async with session.exclusive():
            if not session.has_sandbox:
                raise InvalidArgument(
                    f"session {quoted(session_id, 40)} has no sandbox that could be committed", "run code in it first"
                )
            return await backend.images.commit(await session.sandbox(), image)

    async def environment(self, session_id: str, language: str) -> Mapping[str, str]:
        """The environment variables of a language's processes, such as the paths of its programs and libraries."""
        chosen = self._languages[language]
        session = self._live.get(session_id)
        async with session.exclusive():
            sandbox = await session.sandbox()
        return (await self._preparation.places(chosen)).env(sandbox.path)

    @asynccontextmanager
    async def use(self, work: Work) -> AsyncIterator[None]:
        """Holds the session's turn for work, and closes the session afterwards unless it is to be kept.

        A session in which nothing has run is also closed if the work fails and its caller never learns the id.
        """
        session, done = work.session, False
        try:
            async with session.exclusive(work.take_back):
                yield
            done = True
        finally:
            useless = not done and not session.runs and not work.told
            if (useless or not work.ask.keep_session) and not session.closed:
                self._live.close(session.id)
                with anyio.CancelScope(shield=True), suppress(StoreFailed):
                    await self._keeping.forget(session)
