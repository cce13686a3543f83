"""What tests ask of a service, with the arguments of `Ask` as keywords."""

from collections.abc import Mapping, Sequence
from typing import Unpack

from ..base.principal import USER
from ..base.results import Execution, Installation, OnOutput, OnProgress
from ..service import Service
from ..service.ask import Ask, Options
from ..service.work import Listener, Work
from ..sessions.session import Session


async def execute(
    service: Service,
    code: str,
    *,
    session_id: str = "",
    keep_session: bool = True,
    for_model: bool = False,
    on_output: OnOutput | None = None,
    on_progress: OnProgress | None = None,
    **options: Unpack[Options],
) -> Execution:
    """Runs code, and waits for the result."""
    ask = Ask(caller=USER, code=code, session_id=session_id, keep_session=keep_session, for_model=for_model, **options)
    return await service.run(ask, Listener(on_output, on_progress))


async def install(
    service: Service,
    libraries: Sequence[str],
    *,
    language: str = "python",
    session_id: str = "",
    on_progress: OnProgress | None = None,
) -> Installation:
    """Installs libraries, and waits for the result."""
    ask = Ask(caller=USER, language=language, session_id=session_id, libraries=libraries)
    return await service.install(ask, Listener(None, on_progress))


async def start(
    service: Service,
    code: str | None = None,
    *,
    session_id: str = "",
    keep_session: bool = True,
    origin: tuple[str, ...] = (),
    **options: Unpack[Options],
) -> Work:
    """Starts work that goes on by itself: a run, or an installation if there is no code."""
    ask = Ask(
        caller=USER,
        origin=origin,
        code=code,
        session_id=session_id,
        keep_session=keep_session,
        **options,
    )
    return service.door.start(await service.door.check(ask))


async def session_of(service: Service, session_id: str, language: str = "python") -> Session:
    """The live session of that id: what callers cannot see of it, or do with it."""
    ask = Ask(caller=USER, code="1", language=language, session_id=session_id)
    return service.sessions.of(await service.door.check(ask))


def open_session(service: Service, language: str = "python", limits: Mapping[str, float] | None = None) -> str:
    """Opens a session, and returns its id."""
    return service.sessions.open(USER, language, limits)
