"""The MCP tools: checks the arguments, calls the service, and describes the results."""

import binascii
import logging
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    ListToolsResult,
    PaginatedRequestParams,
    ResourceLink,
)

from ..errors import InvalidArgument, PolicyDenied, SandboxError, UnknownArtifact, quoted
from ..escaping import one_line
from ..results import Execution, SessionInfo
from ..service import Service
from ..service.background import BackgroundRun, Listener
from ..units import format_size
from ..utf8 import LONGEST_CHARACTER, whole_end
from .arguments import parse_arguments
from .audience import Audience
from .content import (
    as_text,
    attach,
    describe_artifacts,
    describe_installed,
    describe_run,
    failure,
    going_on,
    item,
    link,
    structured,
    success,
)
from .old_names import OldNames, by_our_names
from .progress import reporting
from .schemas import (
    Arguments,
    ArtifactItem,
    Artifacts,
    Copied,
    CopyFile,
    ExecuteCode,
    Executed,
    GetArtifacts,
    GetLanguageDetails,
    GetSupportedLanguages,
    Installed,
    InstallLibraries,
    LibraryItem,
    Managed,
    ManageSession,
    SessionItem,
    define_tools,
)
from .task_extension import AT_ONCE, Tasks, declared
from .uris import artifact_uri
from .words import in_words

UNFORESEEN = "the server had an unexpected error, which its log explains; try again"

_TEXT_LIMIT = 256 * 1000
_BASE64_LIMIT = 1_000_000
_NAMES_SHOWN = 5

_log = logging.getLogger(__name__)

Context = ServerRequestContext[Audience]
_Arguments = TypeVar("_Arguments", bound=Arguments)


@dataclass(frozen=True, slots=True)
class _Tool:
    model: type[Arguments]
    run: Callable[[Context, Any], Awaitable[CallToolResult | dict[str, Any]]]


class Tools:
    """Answers tools/list and tools/call. `host_files`: the only client is the user of this machine, on stdio."""

    def __init__(self, service: Service, *, host_files: bool) -> None:
        self._service = service
        self._host_files = host_files
        self.tasks = Tasks(service.runs, self._result_of)
        self.definitions = define_tools(service.profile, service.languages, host_files=host_files)
        self._tools = {
            "execute_code": _Tool(ExecuteCode, self._execute_code),
            "install_libraries": _Tool(InstallLibraries, self._install_libraries),
            "copy_file": _Tool(CopyFile, self._copy_file),
            "get_artifacts": _Tool(GetArtifacts, self._get_artifacts),
            "manage_session": _Tool(ManageSession, self._manage_session),
        }
        self._old_names = OldNames(service) if service.profile.tools.old_names else None
        if self._old_names is not None:
            self._tools |= {
                "get_supported_languages": _Tool(GetSupportedLanguages, self._old_names.supported_languages),
                "get_language_details": _Tool(GetLanguageDetails, self._old_names.language_details),
            }

    async def list_tools(self, _ctx: Context, _params: PaginatedRequestParams | None) -> ListToolsResult:
        """Answers tools/list."""
        return ListToolsResult(tools=list(self.definitions.values()))

    async def call(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult | dict[str, Any]:
        """Answers tools/call. Failed code is a normal result; a mistake of the caller is an error in the result."""
        tool = self._tools.get(params.name)
        if tool is None:
            known = ", ".join(self._tools)
            raise MCPError(INVALID_PARAMS, f"unknown tool {quoted(params.name, 40)}; available: {known}")
        given: Mapping[str, Any] = params.arguments or {}
        if self._old_names is not None:
            given = by_our_names(params.name, given)
        try:
            return await tool.run(ctx, parse_arguments(tool.model, params.name, given))
        except SandboxError as error:
            return failure(in_words(error))
        except Exception:
            _log.exception("%s failed", params.name)
            return failure(UNFORESEEN)

    async def _execute_code(self, ctx: Context, arguments: ExecuteCode) -> CallToolResult | dict[str, Any]:
        run = await self._service.runs.start(
            arguments.code,
            language=arguments.language,
            session_id=arguments.session_id,
            libraries=arguments.libraries,
            timeout=self._timeout(arguments),
            variables=arguments.variables,
            stdin=arguments.stdin,
            keep_session=arguments.keep_session,
        )
        self._note_use(ctx, run.session_id)
        knows_tasks = declared(ctx)
        seconds = min(arguments.wait_seconds, AT_ONCE) if knows_tasks else arguments.wait_seconds
        try:
            async with ctx.lifespan_context.calls.waiting(ctx, run), reporting(ctx.session.report_progress) as progress:
                execution = await run.wait(seconds, Listener(progress.output, progress.line))
        except Exception:  # it is the answer; a call that is cancelled gets none
            self._service.runs.forget(run)
            raise
        if execution is None and knows_tasks:
            return self.tasks.created(run)
        answer, attached = await self._answer(run, execution)
        if execution is not None:
            self._service.runs.forget(run)
        return success(describe_run(answer), answer, attached)

    async def _answer(self, run: BackgroundRun, execution: Execution | None) -> tuple[Executed, list[ContentBlock]]:
        """The result of a run, or what is known about it if it goes on."""
        if execution is None:
            return going_on(run), []
        return structured(execution), await attach(self._service, execution.session_id, execution.artifacts)

    async def _result_of(self, run: BackgroundRun) -> CallToolResult:
        """The result of the call that a run which has ended began with."""
        try:
            answer, attached = await self._answer(run, await run.wait())
        except SandboxError as error:
            return failure(in_words(error))
        except Exception:  # it is in the log
            return failure(UNFORESEEN)
        return success(describe_run(answer), answer, attached)

    def _timeout(self, arguments: ExecuteCode) -> float | None:
        longest = self._service.profile.limits.timeout
        # A profile can allow less than the default; only a timeout that the caller sent is refused.
        if "timeout_seconds" not in arguments.model_fields_set:
            return None
        if arguments.timeout_seconds > longest:
            sent = f"{arguments.timeout_seconds:g}"
            raise InvalidArgument(
                f"timeout_seconds must be at most {longest:g}; got {sent}; send less, or let the operator raise "
                "limits.timeout in the profile"
            )
        return arguments.timeout_seconds

    async def _install_libraries(self, ctx: Context, arguments: InstallLibraries) -> CallToolResult:
        async with reporting(ctx.session.report_progress) as progress:
            installation = await self._service.install(
                arguments.libraries,
                language=arguments.language,
                session_id=arguments.session_id,
                on_progress=progress.line,
            )
        self._note_use(ctx, installation.session_id)
        libraries = [LibraryItem(name=found.name, version=found.version) for found in installation.libraries]
        answer = Installed(session_id=installation.session_id, libraries=libraries)
        return success(describe_installed(answer), answer)

    async def _copy_file(self, ctx: Context, arguments: CopyFile) -> CallToolResult:
        if arguments.host_path and not self._host_files:
            raise PolicyDenied("host_path: only a server on stdio can copy files of its machine; send content instead")
        if arguments.content and (arguments.host_path or arguments.direction == "out"):
            other = "host_path" if arguments.host_path else 'direction "out"'
            raise InvalidArgument(f"content and {other} exclude each other; leave one of them out")
        copied = await (self._copy_in(arguments) if arguments.direction == "in" else self._copy_out(arguments))
        self._note_use(ctx, arguments.session_id)
        return copied

    async def _copy_in(self, arguments: CopyFile) -> CallToolResult:
        session_id, path = arguments.session_id, arguments.path
        if arguments.host_path:
            artifact = await self._service.files.copy_in_from_host(session_id, path, arguments.host_path)
        else:
            artifact = await self._service.files.copy_in(session_id, path, _decode(arguments))
        answer = Copied(
            session_id=session_id,
            path=artifact.name,
            size_bytes=artifact.size,
            mime_type=artifact.mime_type,
            content="",
            encoding=arguments.encoding,
            uri="",
            host_path=arguments.host_path,
        )
        return success(f"copied in: {one_line(artifact.name)} ({format_size(artifact.size)})", answer)

    async def _copy_out(self, arguments: CopyFile) -> CallToolResult:
        session_id, path, host_path = arguments.session_id, arguments.path, arguments.host_path
        if host_path:
            artifact = await self._service.files.copy_out_to_host(session_id, path, host_path)
            content = uri = ""
        else:
            artifact = await self._service.files.copy_out(session_id, path)
            content = await self._small(session_id, artifact.name, artifact.size, arguments.encoding)
            uri = artifact_uri(session_id, artifact.name)
        answer = Copied(
            session_id=session_id,
            path=artifact.name,
            size_bytes=artifact.size,
            mime_type=artifact.mime_type,
            content=content,
            encoding=arguments.encoding,
            uri=uri,
            host_path=host_path,
        )
        done = f"copied out: {one_line(artifact.name)} ({format_size(artifact.size)})"
        if host_path:
            return success(f"{done} to {host_path}", answer)
        if content or not artifact.size:
            return success(f"{done}\n{content}", answer)
        why = (
            "read it at the link"
            if arguments.encoding == "base64"
            else 'read it at the link, or with encoding "base64"'
        )
        return success(f"{done}; too large or not text, {why}: {uri}", answer, [link(session_id, artifact)])

    async def _small(self, session_id: str, name: str, size: int, encoding: str) -> str:
        if size >= (_TEXT_LIMIT if encoding == "text" else _BASE64_LIMIT):
            return ""
        _, data = await self._service.files.read_artifact(session_id, name)
        return b64encode(data).decode() if encoding == "base64" else as_text(data) or ""

    async def _get_artifacts(self, ctx: Context, arguments: GetArtifacts) -> CallToolResult:
        session_id = arguments.session_id
        found = {artifact.name: artifact for artifact in self._service.files.artifacts(session_id)}
        if missing := [name for name in arguments.names if name not in found]:
            known = ", ".join(quoted(name, 40) for name in [*found][:_NAMES_SHOWN]) or "none"
            more = f" and {len(found) - _NAMES_SHOWN} more" if len(found) > _NAMES_SHOWN else ""
            raise UnknownArtifact(f"names: unknown artifact {quoted(missing[0])}; available: {known}{more}")
        wanted = [found[name] for name in arguments.names] if arguments.names else [*found.values()]
        items = [item(session_id, artifact) for artifact in wanted]
        self._note_use(ctx, session_id)
        if arguments.offset or arguments.length:
            return await self._get_part(arguments, items)
        answer = Artifacts(session_id=session_id, artifacts=items, text="", next_offset=0)
        lines = describe_artifacts(items) or ["no artifacts"]
        if not arguments.names:
            return success("\n".join(lines), answer)
        attached = await attach(self._service, session_id, wanted, embed=True)
        if any(isinstance(block, ResourceLink) for block in attached):
            lines.append("note: the rest is at its links; text is also returned in parts, by offset and length")
        return success("\n".join(lines), answer, attached)

    async def _get_part(self, arguments: GetArtifacts, items: list[ArtifactItem]) -> CallToolResult:
        if len(arguments.names) != 1:
            raise InvalidArgument("names must be one name if offset or length is given; name the artifact to read")
        [found], offset = items, arguments.offset
        if offset > found.size_bytes:
            raise InvalidArgument(f"offset must be at most {found.size_bytes}, the artifact's size; got {offset}")
        length = min(max(arguments.length or _TEXT_LIMIT, LONGEST_CHARACTER), _TEXT_LIMIT)
        _, data = await self._service.files.read_artifact(arguments.session_id, found.name, offset, length)
        if b"\0" in data:
            raise InvalidArgument(
                f"names: {quoted(found.name)} is not text; leave out offset and length to get it, or a link to it"
            )
        if offset + len(data) < found.size_bytes:
            data = whole_end(data)
        end = offset + len(data)
        more = f"; call again with offset {end}" if end < found.size_bytes else ""
        text = data.decode(errors="replace")
        answer = Artifacts(session_id=arguments.session_id, artifacts=items, text=text, next_offset=end if more else 0)
        return success(f"{one_line(found.name)}: bytes {offset} to {end} of {found.size_bytes}{more}\n{text}", answer)

    async def _manage_session(self, ctx: Context, arguments: ManageSession) -> CallToolResult:
        action, session_id = arguments.action, arguments.session_id
        if action == "list":
            sessions = [self._session(info) for info in self._visible(ctx, session_id)]
            lines = [self._describe(session) for session in sessions] or ["no sessions"]
            pool = self._pool()
            lines.append(f"sandboxes: {pool['leased']} in use, {pool['warm']} warm, {pool['max']} at most")
            return success("\n".join(lines), Managed(action=action, sessions=sessions, run={}, pool=pool))
        if action in ("wait", "read", "cancel"):
            return await self._manage_run(ctx, arguments)
        if not session_id:
            raise InvalidArgument(f"session_id: {action} needs one; send the one that execute_code returned")
        if action == "interrupt":
            await self._service.sessions.interrupt(session_id)
        elif action == "clear":
            await self._service.sessions.clear(session_id)
        elif action == "reset":
            await self._service.sessions.reset(session_id)
        else:
            await self._service.sessions.close(session_id)
        self._note_use(ctx, session_id)
        done = {"interrupt": "interrupted", "clear": "cleared", "reset": "reset", "close": "closed"}[action]
        return success(f"{done}: {session_id}", self._managed(action, session_id))

    async def _manage_run(self, ctx: Context, arguments: ManageSession) -> CallToolResult:
        if not arguments.run_id:
            raise InvalidArgument(f"run_id: {arguments.action} needs one; send the one that execute_code returned")
        run = self._service.runs.get(arguments.run_id)
        self._note_use(ctx, run.session_id)
        if arguments.action == "cancel":
            run.cancel()
        seconds = 0 if arguments.action == "read" else arguments.wait_seconds
        async with reporting(ctx.session.report_progress) as progress:
            execution = await run.wait(seconds, Listener(progress.output, progress.line))
        found, attached = await self._answer(run, execution)
        answer = self._managed(arguments.action, run.session_id, found.model_dump(mode="json"))
        return success(describe_run(found), answer, attached)

    def _managed(self, action: str, session_id: str, run: Mapping[str, Any] = MappingProxyType({})) -> Managed:
        sessions = [self._session(info) for info in self._service.sessions.list() if info.id == session_id]
        return Managed(action=action, sessions=sessions, run=dict(run), pool=self._pool())

    def _note_use(self, ctx: Context, session_id: str) -> None:
        """Records that the connection named or opened the session, so that it sees the session while it lives."""
        used = ctx.lifespan_context.peer(ctx).sessions
        used.add(session_id)
        if len(used) > 2 * self._service.profile.sessions.max:
            used.intersection_update(info.id for info in self._service.sessions.list())

    def _session(self, info: SessionInfo) -> SessionItem:
        return SessionItem(
            session_id=info.id,
            running=info.running,
            languages=[*info.languages],
            runs=info.runs,
            age_seconds=round(info.age),
            expires_in_seconds=round(info.expires_in),
            run_ids=[run.id for run in self._service.runs.of_session(info.id)],
        )

    def _describe(self, session: SessionItem) -> str:
        runs = [
            f"\n  run {run.id}: {'ended' if run.ended else 'running' if run.begun else 'waiting'}, {run.duration:.3g} s"
            for run in self._service.runs.of_session(session.session_id)
        ]
        return (
            f"{session.session_id}: {'running' if session.running else 'idle'}, {session.runs} runs, "
            f"{', '.join(session.languages) or 'no language yet'}, expires in {session.expires_in_seconds} s"
            + "".join(runs)
        )

    def _pool(self) -> dict[str, int]:
        pool = self._service.pool()
        return {"warm": pool.warm, "leased": pool.leased, "max": pool.max}

    def _visible(self, ctx: Context, session_id: str) -> list[SessionInfo]:
        # An id is enough to use a session. On stdio, every session belongs to the only client. Over HTTP, clients share
        # the server, so each sees only the sessions that its own connection used. In the 2026 protocol, every request
        # is a connection, so a request sees only the session that it names.
        infos = self._service.sessions.list()
        if session_id:
            return [info for info in infos if info.id == session_id]
        if self._host_files:
            return [*infos]
        used = ctx.lifespan_context.peer(ctx).sessions
        return [info for info in infos if info.id in used]


def _decode(arguments: CopyFile) -> bytes:
    if arguments.encoding == "text":
        return arguments.content.encode()
    try:
        return b64decode("".join(arguments.content.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidArgument(
            f'content is not valid base64 ({error}); encode it again, or use encoding "text"'
        ) from None
