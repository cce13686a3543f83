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

from ..base.messages import listed
from ..base.results import Artifact, HostFile, Overview
from ..base.text import one_line, valid, valid_json
from ..base.units import format_size
from ..files.images import identify
from ..files.pictures import KINDS, LARGEST, LONGEST, MOST, SHOWN, Pictures, may_be_shown
from ..service import Service
from .schemas import Answer, ArtifactItem
from .uris import artifact_uri

_NAMED, _LONGEST_NAME = 5, 100
"""Pictures that a note names, and how many characters of a name."""
_LINKS_SHOWN = 20

LONGEST_TEXT = 256 * 1000
"""Bytes of a file that a result contains as text."""
_EMBEDDED = 4 * LONGEST_TEXT
"""Bytes of all files that one result contains as a whole, and of a file that a resource contains as text: JSON can make
six bytes of one."""
_PORTION = 3 << 16
"""Bytes that become base64 at once; a multiple of three."""


def success(text: str, answer: Answer, attached: Iterable[ContentBlock] = ()) -> CallToolResult:
    """A result: the text is complete by itself, the structured content says the same."""
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
    service: Service,
    session_id: str,
    artifacts: Sequence[Artifact],
    overview: Overview | None = None,
    *,
    embed: bool = False,
) -> tuple[list[ContentBlock], list[str]]:
    """Small images to view, each once, the overview of the others, and links to the rest; and what to say about it.

    With `embed`, other small files are contained as a whole. Images that are not shown are only linked: their content
    could be broken, and a client would show it to its model.
    """
    blocks: list[ContentBlock] = []
    links = 0
    room = _EMBEDDED
    pictures = await service.files.pictures(session_id, artifacts)
    for artifact in artifacts:
        block: ContentBlock | None = None
        if (picture := pictures.whole.get(artifact.name)) is not None:
            block = _image(picture, artifact.mime_type)
        elif embed and artifact.mime_type not in KINDS and artifact.size <= min(room, LONGEST_TEXT):
            _, data = await service.files.read_artifact(session_id, artifact.name)
            room -= len(data)
            block = EmbeddedResource(resource=await contents(session_id, artifact, data))
        elif links < _LINKS_SHOWN:
            links += 1
            block = link(session_id, artifact)
        if block is not None:
            blocks.append(block)
    if overview is not None and (shown := identify(overview.picture)):
        blocks.append(_image(overview.picture, shown.mime_type))
    return blocks, _about_pictures(pictures, overview or Overview())


def _image(content: bytes, mime_type: str) -> ImageContent:
    return ImageContent(data=b64encode(content).decode(), mime_type=mime_type)


def _about_pictures(pictures: Pictures, overview: Overview) -> list[str]:
    """What a model has to know about pictures that it does not see as they are."""
    notes = []
    singly = f"get_artifacts with at most {SHOWN} names shows small pictures as they are"
    if on := overview.names:
        how = f", in this order; {singly}, and links return the files" if len(on) > 1 else "; its link returns the file"
        notes.append(f"the last image shows {_names(on)} smaller{how}")
    left = [artifact for artifact in pictures.rest if artifact.name not in on]
    if too_large := [artifact.name for artifact in left if not may_be_shown(artifact)]:
        limits = f"{format_size(LARGEST)}, {LONGEST} pixels a side or {MOST // 10**6} million pixels"
        why = f", and {overview.lacking}" if overview.lacking else ""
        notes.append(f"not shown: {_names(too_large)}: larger than {limits}{why}; save a smaller one to see it")
    if broken := [artifact.name for artifact in left if artifact.name in pictures.broken]:
        notes.append(f"not shown: {_names(broken)}: not complete; write it again")
    if others := [artifact.name for artifact in left if may_be_shown(artifact) and artifact.name not in broken]:
        notes.append(f"not shown: {_names(others)}: too many; {singly}")
    return notes


def _names(names: Iterable[str]) -> str:
    return one_line(listed((name[:_LONGEST_NAME] for name in names), _NAMED))


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
