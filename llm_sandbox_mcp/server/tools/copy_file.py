"""The tool `copy_file`: copies a file into a session, or out of it."""

import binascii
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
from mcp.types import CallToolResult, InputRequiredResult

from ...base.errors import InvalidArgument, PolicyDenied, UnknownSession
from ...base.open_folders import OpenFolder
from ...base.results import HostFile
from ...base.text import one_line
from ...base.units import format_size
from ...runs.requests import notes_on_text
from ...service import Service
from ..access import principal_of
from ..audience import Context
from ..content import LONGEST_TEXT, as_text, describe_kept, link, success
from ..roots import Roots
from ..schemas import Copied, CopyFile
from ..uris import artifact_uri
from ..words import in_words

_BASE64_LIMIT = 1_000_000
"""Bytes of a file that is returned as base64 in the result."""


async def copy_file(
    service: Service, roots: Roots, ctx: Context, arguments: CopyFile
) -> CallToolResult | InputRequiredResult:
    """What was copied; or a question to the client, which it answers in another call."""
    if arguments.host_path and not roots.host_files:
        raise PolicyDenied("host_path: only a server on stdio can copy files of its machine", "send content instead")
    if arguments.content and (arguments.host_path or arguments.direction == "out"):
        other = "host_path" if arguments.host_path else 'direction "out"'
        raise InvalidArgument(f"content and {other} exclude each other", "leave one of them out")
    await service.keeping.wake(principal_of(ctx.request), arguments.session_id)
    if arguments.direction == "out":
        if not arguments.session_id:
            raise InvalidArgument('session_id: direction "out" needs one', "send the one that execute_code returned")
        copied = await _copy_out(service, arguments)
        ctx.lifespan_context.note_use(ctx, arguments.session_id)
        return copied
    folders = await roots.folders(ctx) if arguments.host_path else ()
    if isinstance(folders, InputRequiredResult):
        return folders
    data = _decode(arguments)
    # Before a session is opened for nothing, for which another may have to make room.
    if not arguments.session_id and arguments.host_path:
        await service.files.check_from_host(arguments.path, arguments.host_path, folders)
    elif not arguments.session_id:
        service.files.check(arguments.path, len(data))
    async with _session(service, ctx, arguments.session_id) as session_id:
        copied = await _copy_in(service, session_id, arguments, data, folders)
    ctx.lifespan_context.note_use(ctx, session_id)
    return copied


@asynccontextmanager
async def _session(service: Service, ctx: Context, named: str) -> AsyncIterator[str]:
    """The session for a file; if none is named, a new one, which is closed if the file does not get there."""
    session_id = named or service.sessions.open(principal_of(ctx.request))
    try:
        yield session_id
    except BaseException:
        if not named:
            with anyio.CancelScope(shield=True), suppress(UnknownSession):
                await service.sessions.close(session_id)
        raise


async def _copy_in(
    service: Service, session_id: str, arguments: CopyFile, data: bytes, folders: Sequence[OpenFolder]
) -> CallToolResult:
    path = arguments.path
    if arguments.host_path:
        artifact = await service.files.copy_in_from_host(session_id, path, arguments.host_path, folders)
    else:
        artifact = await service.files.copy_in(session_id, path, data)
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
    notes = notes_on_text(content=arguments.content) if arguments.encoding == "text" else []
    done = f"copied in: {one_line(artifact.name)} ({format_size(artifact.size)})"
    opened = [] if arguments.session_id else [f"session: {session_id}"]
    return success("\n".join([*opened, done, *(f"note: {in_words(note)}" for note in notes)]), answer)


async def _copy_out(service: Service, arguments: CopyFile) -> CallToolResult:
    session_id, path = arguments.session_id, arguments.path
    written: HostFile | None = None
    if arguments.host_path:
        artifact, written = await service.files.copy_out_to_host(session_id, path, arguments.host_path)
        content = uri = ""
    else:
        artifact = await service.files.copy_out(session_id, path)
        content = await _small(service, session_id, artifact.name, artifact.size, arguments.encoding)
        uri = artifact_uri(session_id, artifact.name)
    answer = Copied(
        session_id=session_id,
        path=artifact.name,
        size_bytes=artifact.size,
        mime_type=artifact.mime_type,
        content=content,
        encoding=arguments.encoding,
        uri=uri,
        host_path=written.path if written else "",
    )
    done = f"copied out: {one_line(artifact.name)} ({format_size(artifact.size)})"
    if written:
        lines = (f"{done} to {one_line(written.path)}", *describe_kept([written]))
        return success("\n".join(lines), answer)
    if content and arguments.encoding == "base64":
        # Only once: it is long, and those who read only text use the link.
        where = f"as base64 in content of the structured result, and at the link: {uri}"
        return success(f"{done}; {where}", answer, [link(session_id, artifact)])
    if content or not artifact.size:
        return success(f"{done}\n{content}", answer)
    why = "read it at the link" if arguments.encoding == "base64" else 'read it at the link, or with encoding "base64"'
    return success(f"{done}; too large or not text, {why}: {uri}", answer, [link(session_id, artifact)])


async def _small(service: Service, session_id: str, name: str, size: int, encoding: str) -> str:
    if size > (LONGEST_TEXT if encoding == "text" else _BASE64_LIMIT):
        return ""
    _, data = await service.files.read_artifact(session_id, name)
    return b64encode(data).decode() if encoding == "base64" else as_text(data) or ""


def _decode(arguments: CopyFile) -> bytes:
    if arguments.encoding == "text":
        return arguments.content.encode()
    try:
        return b64decode("".join(arguments.content.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidArgument(
            f"content is not valid base64 ({error})", 'encode it again, or use encoding "text"'
        ) from None
