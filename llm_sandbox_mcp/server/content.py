"""Turns results into what a model reads and sees."""

import os
from base64 import b64encode
from collections.abc import Iterable, Sequence

import anyio.lowlevel
from mcp.types import (
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from ..base.results import Artifact, HostFile
from ..base.text import one_line, valid, valid_json
from ..base.units import format_size
from ..files.pictures import KINDS, may_be_shown
from ..service import Service
from .schemas import Answer, ArtifactItem
from .uris import artifact_uri

_IMAGES_SHOWN = 4
_IMAGES_TRIED = 8
"""Images that are read for one result; some can be broken, or the same as others."""
_LINKS_SHOWN = 20

LONGEST_TEXT = 256 * 1000
"""Bytes of a file that a result contains as text."""
_EMBEDDED = 4 * LONGEST_TEXT
"""Bytes of all files that one result contains as a whole, and of a file that a resource contains as text: JSON can make
six bytes of one."""
_PORTION = 3 << 16
"""Bytes that become base64 at once; a multiple of three."""


def success(text: str, answer: Answer, attached: Iterable[ContentBlock] = ()) -> CallToolResult:
    """A result: the text is complete by itself, but for base64; the structured content says the same."""
    return CallToolResult(
        content=[TextContent(text=valid(text)), *attached],
        structured_content=valid_json(answer.model_dump(mode="json")),
    )


def failure(text: str) -> CallToolResult:
    """An error that the caller can act on: always one line, even if code chose parts of it."""
    return CallToolResult(content=[TextContent(text=one_line(text))], is_error=True)


def item(session_id: str, artifact: Artifact) -> ArtifactItem:
    """An artifact as results list it."""
    return ArtifactItem(
        name=artifact.name,
        mime_type=artifact.mime_type,
        size_bytes=artifact.size,
        width=artifact.width,
        height=artifact.height,
        uri=artifact_uri(session_id, artifact.name),
    )


def describe_artifacts(artifacts: Sequence[ArtifactItem], most: int = _LINKS_SHOWN) -> list[str]:
    """One line for each artifact, up to so many."""
    lines = [
        f"artifact: {one_line(artifact.name)} ({_kind(artifact)}, {format_size(artifact.size_bytes)}) {artifact.uri}"
        for artifact in artifacts[:most]
    ]
    if len(artifacts) > most:
        lines.append(f"and {len(artifacts) - most} more; call get_artifacts to list all")
    return lines


def describe_kept(files: Iterable[HostFile]) -> list[str]:
    """One line for each file that was written beside something of the user's."""
    return [
        f"note: {one_line(file.beside)} is the user's and stays as it is; the new file is beside it, as "
        f"{one_line(os.path.basename(file.path))}; compare both, and keep what is right"
        for file in files
        if file.beside
    ]


def _kind(artifact: ArtifactItem) -> str:
    return f"{artifact.mime_type} {artifact.width}x{artifact.height}" if artifact.width else artifact.mime_type


async def attach(
    service: Service, session_id: str, artifacts: Sequence[Artifact], *, embed: bool = False
) -> list[ContentBlock]:
    """Small images to view, each once, and links to the rest; with `embed`, other small files as a whole.

    Images that are not shown are only linked: their content could be broken, and a client would show it to its model.
    """
    blocks: list[ContentBlock] = []
    shown: list[bytes] = []
    tried = links = 0
    room = _EMBEDDED
    for artifact in artifacts:
        block: ContentBlock | None = None
        if artifact.mime_type in KINDS:
            if may_be_shown(artifact) and tried < _IMAGES_TRIED and len(shown) < _IMAGES_SHOWN:
                tried += 1
                picture = await service.files.picture(session_id, artifact.name)
                # Code that shows a figure and saves it makes the same picture twice.
                if picture is not None and picture not in shown:
                    shown.append(picture)
                    block = ImageContent(data=b64encode(picture).decode(), mime_type=artifact.mime_type)
        elif embed and artifact.size <= min(room, LONGEST_TEXT):
            _, data = await service.files.read_artifact(session_id, artifact.name)
            room -= len(data)
            block = EmbeddedResource(resource=await contents(session_id, artifact, data))
        if block is None and links < _LINKS_SHOWN:
            links += 1
            block = link(session_id, artifact)
        if block is not None:
            blocks.append(block)
    return blocks


def link(session_id: str, artifact: Artifact) -> ResourceLink:
    """A link at which a client reads the artifact."""
    return ResourceLink(
        uri=artifact_uri(session_id, artifact.name),
        name=valid(artifact.name),
        mime_type=artifact.mime_type,
        size=artifact.size,
    )


async def contents(session_id: str, artifact: Artifact, data: bytes) -> TextResourceContents | BlobResourceContents:
    """The whole artifact: text if it is UTF-8 without NUL bytes, not an image and not too long, else base64."""
    uri = artifact_uri(session_id, artifact.name)
    may_be_text = artifact.mime_type not in KINDS and len(data) <= _EMBEDDED
    if may_be_text and (text := as_text(data)) is not None:
        return TextResourceContents(uri=uri, mime_type=artifact.mime_type, text=text)
    return await blob(uri, artifact, data)


async def blob(uri: str, artifact: Artifact, data: bytes) -> BlobResourceContents:
    """The whole artifact, or a part of it, as base64."""
    return BlobResourceContents(uri=uri, mime_type=artifact.mime_type, blob=await _base64(data))


async def _base64(data: bytes) -> str:
    parts = []
    for at in range(0, len(data), _PORTION):
        parts.append(b64encode(data[at : at + _PORTION]))
        await anyio.lowlevel.checkpoint()  # others get their turn: a file can have many megabytes
    return b"".join(parts).decode()


def as_text(data: bytes) -> str | None:
    """The bytes as text; None if they are not text."""
    try:
        return None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        return None
