"""Sessions by the names that callers give them: opened on their first use, and again when they are gone."""

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from ...errors import UnknownSession
from ...service import Service
from .models import LogItem

_LANGUAGE = "python"
_ENTRIES = 100
_T = TypeVar("_T")


@dataclass
class Named:
    """A session as its callers know it."""

    name: str
    session_id: str = ""
    """The id in the service; a secret that callers never see, since it is enough to use the session over MCP."""
    news: str = ""
    """What the next result says about it."""
    log: deque[LogItem] = field(default_factory=lambda: deque(maxlen=_ENTRIES))


class NamedSessions:
    """Finds or opens the session that a caller names."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._named: OrderedDict[str, Named] = OrderedDict()
        # More than can live at once, so that a forgotten session ended long ago.
        self._most = 2 * service.profile.sessions.max + 100

    def find(self, name: str) -> Named | None:
        """The session of that name, if it was used before."""
        return self._named.get(name)

    def get(self, name: str) -> Named:
        """The session of that name; it is opened when it is used."""
        named = self._named.setdefault(name, Named(name))
        self._named.move_to_end(name)
        if len(self._named) > self._most:
            self._named.popitem(last=False)
        return named

    async def use(self, named: Named, act: Callable[[str], Awaitable[_T]]) -> tuple[_T, list[str]]:
        """Does something in the session; the notes say if it was opened for that, or for a use without a result."""
        if not named.session_id:
            named.session_id = self._service.sessions.open(_LANGUAGE)
            named.news = f"session {named.name} is new: nothing is left of an earlier one of this name"
        tried = named.session_id
        try:
            result = await act(tried)
        except UnknownSession:
            if named.session_id == tried:  # otherwise another caller has opened it again meanwhile
                named.session_id = self._service.sessions.open(_LANGUAGE)
            lost = "variables and files are lost"
            named.news = f"started fresh: session {named.name} was closed, or unused for too long; {lost}"
            result = await act(named.session_id)
        news, named.news = named.news, ""
        return result, [news] if news else []
