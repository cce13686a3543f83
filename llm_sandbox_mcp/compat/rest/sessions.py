"""Sessions by the names that callers give them: opened on their first use, and again when they are gone."""

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from ...base.errors import UnknownSession
from ...base.principal import Principal
from ...service import Service
from .models import LogItem

_LANGUAGE = "python"
_ENTRIES = 100
_GONE = 100
"""Names that are remembered although their sessions have ended, so that their next use says what was lost."""
_T = TypeVar("_T")


@dataclass
class Named:
    """A session as its callers know it."""

    name: str
    owner: Principal
    """Who gave the name."""
    session_id: str = ""
    """The id in the service; a secret that callers never see, since it is enough to use the session over MCP."""
    news: str = ""
    """What the next result says about it."""
    users: int = 0
    """Requests that use it now."""
    log: deque[LogItem] = field(default_factory=lambda: deque(maxlen=_ENTRIES))


class NamedSessions:
    """Finds or opens the session that a caller names.

    A name is remembered once there was a session for it, and not forgotten while there is one, or a request uses it.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._named: OrderedDict[str, Named] = OrderedDict()

    def find(self, name: str) -> Named | None:
        """The session of that name, if it was used before."""
        return self._named.get(name)

    @contextmanager
    def using(self, name: str, caller: Principal) -> Iterator[Named]:
        """The session of that name, for one request of a caller."""
        named = self._named.setdefault(name, Named(name, caller))
        self._named.move_to_end(name)
        named.users += 1
        try:
            yield named
        finally:
            named.users -= 1
            self._forget()

    async def use(self, named: Named, act: Callable[[str], Awaitable[_T]]) -> tuple[_T, list[str]]:
        """Does something in the session of that id, once nothing else is wrong with a request: one that is refused must
        not take the place of a session. The notes say if it was opened for that, or for a use without a result.
        """

        async def session() -> str:
            await self._service.keeping.wake(named.owner, named.session_id)
            if not self._service.sessions.is_open(named.session_id):
                opened = self._service.sessions.open(named.owner, _LANGUAGE)
                named.news = f"session {named.name} is new: nothing is left of an earlier one of this name"
                if named.session_id:
                    lost = "variables and files are lost"
                    named.news = f"started fresh: session {named.name} was closed, or unused for too long; {lost}"
                named.session_id = opened
            return named.session_id

        try:
            result = await act(await session())
        except UnknownSession:  # it was closed while this request waited for its turn
            result = await act(await session())
        news, named.news = named.news, ""
        return result, [news] if news else []

    def _forget(self) -> None:
        """Forgets names without a session: at once if there never was one, otherwise those used longest ago."""
        idle = [named for named in self._named.values() if not named.users]
        gone = [named for named in idle if named.session_id and not self._service.sessions.is_open(named.session_id)]
        for named in [*(named for named in idle if not named.session_id), *gone[:-_GONE]]:
            del self._named[named.name]
