"""Records everything that a server returns or logs, whichever way a case calls it."""

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import ParamSpec, TypeVar

from llm_sandbox_mcp.base.errors import SandboxError
from llm_sandbox_mcp.base.results import Execution
from llm_sandbox_mcp.service import Service

P = ParamSpec("P")
T = TypeVar("T")


class _Lines(logging.Handler):
    def __init__(self, heard: list[str]) -> None:
        super().__init__()
        self.heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(self.format(record))


@contextmanager
def overheard(service: Service) -> Iterator[list[str]]:
    """Gives a list that collects what the server returns: results, artifacts, errors, and log lines."""
    heard: list[str] = []
    listener = _Lines(heard)
    package = logging.getLogger("llm_sandbox_mcp")
    vars(service).update(
        run=_with_artifacts(service, _hear(service.run, heard), heard), install=_hear(service.install, heard)
    )
    for name in ("copy_in", "copy_in_from_host", "copy_out", "copy_out_to_host", "read", "read_artifact"):
        setattr(service.files, name, _hear(getattr(service.files, name), heard))
    package.addHandler(listener)
    try:
        yield heard
    finally:
        package.removeHandler(listener)


def _hear(method: Callable[P, Awaitable[T]], heard: list[str]) -> Callable[P, Awaitable[T]]:
    @wraps(method)
    async def hearing(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            answer = await method(*arguments, **named)
        except SandboxError as error:
            heard.append(str(error))
            raise
        heard.append(repr(answer))
        return answer

    return hearing


def _with_artifacts(
    service: Service, run: Callable[P, Awaitable[Execution]], heard: list[str]
) -> Callable[P, Awaitable[Execution]]:
    """Also reads the artifacts of each run, before those of a later run may replace them."""

    @wraps(run)
    async def running(*arguments: P.args, **named: P.kwargs) -> Execution:
        result = await run(*arguments, **named)
        for artifact in result.artifacts:
            with suppress(SandboxError):  # it is gone with its session
                _, content = await service.files.read_artifact(result.session_id, artifact.name)
                heard.append(content.decode(errors="replace"))
        return result

    return running
