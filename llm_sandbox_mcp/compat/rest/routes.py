"""The paths of HTTP without MCP: to run Python code with variables, and for its files, libraries and limits."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import anyio
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ...base.errors import InstallFailed, RequestError, UnknownArtifact, UnknownSession
from ...base.results import Artifact, Status
from ...base.text import one_line
from ...files.media import mime_type
from ...server.access import principal_of
from ...server.bodies import claim_of
from ...service import Service
from ...service.ask import Ask
from . import models
from .answers import answered, items, ran
from .inspection import check, inspect
from .models import ExecuteCode, InstallLibraries, LogItem
from .requests import LARGEST_BODY, read_bytes, read_json, session_of
from .sessions import Named, NamedSessions
from .words import in_words

_ERROR_SHOWN = 200
_PIECE = 64 << 10
"""Bytes of a file that are sent at once: what a caller has yet to read stays on disk, or in the room for bodies."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path; its documentation is that of the handler."""

    method: str
    path: str
    handle: Callable[[Request], Awaitable[Response]]
    answer: type[BaseModel] | None
    """The model of the answer; None if the answer is the bytes of a file."""
    body: type[models.Body] | None = None
    upload: bool = False
    """Whether the request contains the bytes of a file instead."""
    status: int = 200
    in_session: bool = True


async def root(_request: Request) -> Response:
    """Whether the server is running, and what it does."""
    return answered(models.Root())


async def health(_request: Request) -> Response:
    """Whether the server is running."""
    return answered(models.Health())


class Rest:
    """Answers the requests."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._sessions = NamedSessions(service)
        self._largest_file = service.profile.artifacts.file_size
        self.operations: Sequence[Operation] = (
            Operation("GET", "/", root, models.Root, in_session=False),
            Operation("GET", "/health", health, models.Health, in_session=False),
            Operation("POST", "/execute_code/", self.execute_code, models.Executed, ExecuteCode),
            Operation("POST", "/libraries", self.install_libraries, models.Installed, InstallLibraries),
            Operation("POST", "/files/{path:path}", self.upload_file, models.Uploaded, upload=True, status=201),
            Operation("GET", "/files/{path:path}", self.download_file, None),
            Operation("GET", "/artifacts", self.list_artifacts, models.Artifacts),
            Operation("GET", "/artifacts/{path:path}", self.download_artifact, None),
            Operation("GET", "/limits", self.limits, models.Limits, in_session=False),
            Operation("GET", "/logs", self.logs, models.Log),
        )

    async def execute_code(self, request: Request) -> Response:
        """Runs Python code with these variables, and returns the values of its names. They stay for the next call."""
        body = await read_json(request, ExecuteCode)
        seconds = body.timeout_seconds if "timeout_seconds" in body.model_fields_set else None
        caller = principal_of(request)
        with self._sessions.using(session_of(request, body), caller) as named:
            log = _Logging(named, "execute")
            try:
                ask = Ask(caller=caller, code=body.code, variables=body.local_dict, timeout=seconds)
                checked = await check(self._service, ask)
                (execution, inspection), notes = await self._sessions.use(
                    named, lambda session: inspect(self._service, checked.within(session))
                )
            except RequestError as error:
                log.add("refused", in_words(error))
                raise
            answer = ran(named.name, execution, inspection, notes)
            if isinstance(answer, models.Executed):
                log.add(answer.status)
                return answered(answer)
            log.add(answer.status, f"{answer.error_type}: {answer.error}")
            return answered(answer, 400)

    async def install_libraries(self, request: Request) -> Response:
        """Installs libraries from the package index into the session."""
        body = await read_json(request, InstallLibraries)
        caller = principal_of(request)
        with self._sessions.using(session_of(request, body), caller) as named:
            log = _Logging(named, "install")
            try:
                checked = await self._service.door.check(Ask(caller=caller, libraries=body.libraries))
                work, notes = await self._sessions.use(
                    named, lambda session: self._service.door.attend(checked.within(session))
                )
            except RequestError as error:
                log.add("refused", in_words(error))
                raise
            except InstallFailed as error:
                log.add("error", in_words(error))
                raise
            log.add("ok")
        libraries = [
            models.LibraryItem(name=found.name, version=found.version) for found in work.installation.libraries
        ]
        notes += map(in_words, work.installation.notes)
        return answered(models.Installed(session_id=named.name, libraries=libraries, notes=notes))

    async def upload_file(self, request: Request) -> Response:
        """Writes the body to a file below the working directory of the session."""
        name, path = session_of(request), request.path_params["path"]
        data = await read_bytes(request, self._largest_file)
        self._service.files.check(path, len(data))
        with self._sessions.using(name, principal_of(request)) as named:
            written, notes = await self._sessions.use(
                named, lambda session: self._service.files.copy_in(session, path, data)
            )
        uploaded = models.Uploaded(session_id=name, path=written.name, size_bytes=written.size, notes=notes)
        return answered(uploaded, 201)

    async def download_file(self, request: Request) -> Response:
        """The content of a file below the working directory of the session."""
        path, session = request.path_params["path"], self._known(request)
        claim = claim_of(request)
        await claim.take(self._largest_file)
        data = await self._service.files.read(session, path)
        claim.shrink(len(data))

        async def pieces() -> AsyncIterator[bytes]:
            for start in range(0, len(data), _PIECE):
                yield data[start : start + _PIECE]

        return _Pieces(path, len(data), pieces())

    async def list_artifacts(self, request: Request) -> Response:
        """The files and figures that runs of the session left behind."""
        return answered(models.Artifacts(session_id=session_of(request), artifacts=items(self._artifacts(request))))

    async def download_artifact(self, request: Request) -> Response:
        """The content of one artifact of the session."""
        path = request.path_params["path"]
        if not self._artifacts(request):
            raise UnknownArtifact("the session has no artifacts", "run code that writes files")
        session = self._known(request)
        artifact, first = await self._service.files.read_artifact(session, path, 0, _PIECE)

        async def pieces() -> AsyncIterator[bytes]:
            yield first
            for start in range(_PIECE, artifact.size, _PIECE):
                now, piece = await self._service.files.read_artifact(session, path, start, _PIECE)
                if now is not artifact:  # the answer is cut, which the caller notices
                    raise UnknownArtifact("the artifact was replaced meanwhile", "get it again")
                yield piece

        return _Pieces(artifact.name, artifact.size, pieces())

    async def limits(self, _request: Request) -> Response:
        """The limits of code and requests on this server."""
        profile = self._service.profile
        policy = profile.limits
        return answered(
            models.Limits(
                **{name: getattr(policy, name) for name in models.Limits.model_fields.keys() & policy.model_fields_set},
                body=LARGEST_BODY,
                upload=self._largest_file,
                session_idle=profile.sessions.idle_timeout,
            )
        )

    async def logs(self, request: Request) -> Response:
        """The outcome of the last requests to run code or to install libraries in the session."""
        name = session_of(request)
        named = self._sessions.find(name)
        return answered(models.Log(session_id=name, entries=[*named.log] if named else []))

    def _known(self, request: Request) -> str:
        """The service's id of a session that was used before."""
        name = session_of(request)
        named = self._sessions.find(name)
        if named is None or not named.session_id:
            raise UnknownSession(
                f"session {name} has not been used since the server started", "run code in it or upload a file first"
            )
        return named.session_id

    def _artifacts(self, request: Request) -> tuple[Artifact, ...]:
        try:
            return self._service.files.artifacts(self._known(request))
        except UnknownSession:
            return ()


class _Logging:
    """Logs the outcome of one request."""

    def __init__(self, named: Named, action: models.Action) -> None:
        self._named = named
        self._action: models.Action = action
        self._begun = datetime.now(UTC), anyio.current_time()

    def add(self, status: Status | models.Refusal, error: str = "") -> None:
        when, start = self._begun
        self._named.log.append(
            LogItem(
                time=when.isoformat(timespec="milliseconds"),
                action=self._action,
                status=status,
                duration_ms=round((anyio.current_time() - start) * 1000),
                error=one_line(error[:_ERROR_SHOWN]),
            )
        )


class _Pieces(StreamingResponse):
    """The content of a file, piece by piece, as fast as the caller reads."""

    def __init__(self, name: str, size: int, pieces: AsyncIterator[bytes]) -> None:
        # Code wrote the content: a browser must not show it as a page of this server, and must not guess its type.
        headers = {
            "Content-Length": str(size),
            "Content-Disposition": "attachment",
            "Content-Security-Policy": "sandbox",
            "X-Content-Type-Options": "nosniff",
        }
        super().__init__(pieces, media_type=mime_type(name), headers=headers)
