"""Saves sessions under a name, opens them again, and branches them: as a copy by value, never as a live process."""

from ..backends.base import Sandbox
from ..base.errors import InvalidArgument, PolicyDenied, quoted
from ..base.principal import ANONYMOUS, Principal
from ..base.results import OnProgress, Opened, SavedSession
from ..sessions.session import Session
from ..state.saved import checked_name
from .contents import Contents
from .parts import Parts
from .preparation import Preparation

_FRESH = "run code in it first"


class States:
    """The saved sessions of all callers."""

    def __init__(self, parts: Parts, preparation: Preparation, contents: Contents) -> None:
        self._languages = parts.languages
        self._live = parts.live
        self._saved = parts.saved
        self._preparation = preparation
        self._contents = contents

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
                return await self._contents.write(session, sandbox, writer, name, tmp=tmp)

    async def open(self, caller: Principal, name: str, on_progress: OnProgress | None = None) -> Opened:
        """Opens a saved session as a new one, within the limits of today's profile; the saved one stays.

        Raises `UnknownState`, and `BadState` if it is damaged or does not fit.
        """
        _check_known(caller)
        async with self._saved.reading(caller, name) as reader:
            language, policy = self._contents.frame(reader.manifest)
            session = self._live.open(language, policy, caller)
            try:
                async with session.exclusive():
                    sandbox = await self._preparation.sandbox(session, self._languages[language], on_progress)
                    return await self._contents.read(session, sandbox, reader, on_progress)
            except BaseException:
                self._drop(session)
                raise

    async def branch(self, caller: Principal, session_id: str, on_progress: OnProgress | None = None) -> Opened:
        """Opens a second session that starts where this one stands, with /tmp; both go on separately."""
        session = self._live.get(session_id)
        async with session.exclusive():
            sandbox = await _with_state(session)
            second = self._live.open(session.language, session.policy, caller)
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
