"""The tool `get_artifacts`: lists what runs left behind, returns it, or reads a part of it."""

from collections.abc import Sequence

from mcp.types import CallToolResult, ResourceLink

from ...base.errors import InvalidArgument, PolicyDenied, UnknownArtifact, quoted
from ...base.results import Artifact
from ...base.text import LONGEST_CHARACTER, one_line, whole_end
from ...service import Service
from ..access import principal_of
from ..audience import Context
from ..content import LONGEST_TEXT, attach, describe_artifacts, describe_kept, item, success
from ..schemas import Artifacts, GetArtifacts

_NAMES_SHOWN = 5
_LISTED = 200
"""Artifacts in one answer. Code chose their names, which can be long, and are in it several times."""


async def get_artifacts(service: Service, host_files: bool, ctx: Context, arguments: GetArtifacts) -> CallToolResult:
    """The artifacts that were named, or the part of one; without names, a list. `host_files`: they can be saved."""
    session_id = arguments.session_id
    if arguments.save_to and not host_files:
        raise PolicyDenied("save_to: only a server on stdio can save files on its machine", "leave it out")
    listing = not (arguments.names or arguments.length or arguments.save_to)
    in_part = not listing and bool(arguments.offset or arguments.length)
    if in_part and len(arguments.names) != 1:
        raise InvalidArgument("names must be one name if offset or length is given", "name the artifact to read")
    if in_part and arguments.save_to:
        raise InvalidArgument("save_to and a part of an artifact exclude each other", "leave out offset and length")
    await service.keeping.bring_back(principal_of(ctx.request), session_id)
    wanted = _find(service.files.artifacts(session_id), arguments.names)
    ctx.lifespan_context.note_use(ctx, session_id)
    if in_part:
        return await _get_part(service, arguments, wanted[0])
    if listing:
        return _list(session_id, wanted, arguments.offset)
    saved, notes = await _save(service, session_id, wanted, arguments.save_to) if arguments.save_to else ([], [])
    shown = wanted[-_LISTED:]
    answer = Artifacts(
        session_id=session_id,
        artifacts=[item(session_id, artifact) for artifact in shown],
        text="\n".join(notes),
        next_offset=0,
        saved=saved,
    )
    lines = describe_artifacts(answer.artifacts) or ["no artifacts"]
    if len(wanted) > _LISTED:
        step = "name the others in a further call" if arguments.names else "leave out save_to to list the others"
        lines.append(f"note: these are the last {_LISTED} of {len(wanted)} artifacts; {step}")
    lines += [f"saved: {one_line(path)}" for path in saved]
    lines += notes
    if saved:
        return success("\n".join(lines), answer)
    overview = await service.overviews.of_artifacts(session_id, shown)
    attached, notes = await attach(service, session_id, shown, overview, embed=True)
    lines += [f"note: {note}" for note in notes]
    if any(isinstance(block, ResourceLink) for block in attached):
        lines.append("note: the rest is at its links; text is also returned in parts, by offset and length")
    return success("\n".join(lines), answer, attached)


def _list(session_id: str, found: Sequence[Artifact], skipped: int) -> CallToolResult:
    """A part of the list: the last artifacts, but for those that are skipped."""
    if skipped and skipped >= len(found):
        raise InvalidArgument(f"offset must be below {len(found)}, the number of artifacts; got {skipped}")
    end = len(found) - skipped
    start = max(0, end - _LISTED)
    answer = Artifacts(
        session_id=session_id,
        artifacts=[item(session_id, artifact) for artifact in found[start:end]],
        text="",
        next_offset=len(found) - start if start else 0,
        saved=[],
    )
    lines = describe_artifacts(answer.artifacts, _LISTED) or ["no artifacts"]
    if len(found) > _LISTED:
        more = f"; call again with offset {answer.next_offset} to list those before them" if start else ""
        lines.append(f"note: artifacts {start + 1} to {end} of {len(found)}{more}")
    return success("\n".join(lines), answer)


async def _save(
    service: Service, session_id: str, wanted: Sequence[Artifact], folder: str
) -> tuple[list[str], list[str]]:
    """Where the artifacts are now, and what else there is to say; raises `InvalidArgument` if none could be saved."""
    saved = await service.files.save_artifacts(session_id, [artifact.name for artifact in wanted], folder)
    if saved.failed and not saved.files:
        reasons = [*dict.fromkeys(saved.failed.values())]
        more = f"; and {len(reasons) - _NAMES_SHOWN} more" if len(reasons) > _NAMES_SHOWN else ""
        raise InvalidArgument(f"save_to: {'; '.join(reasons[:_NAMES_SHOWN])}{more}")
    failed = [f"not saved: {one_line(name)}: {one_line(why)}" for name, why in saved.failed.items()]
    return [file.path for file in saved.files], [*describe_kept(saved.files), *failed]


def _find(artifacts: Sequence[Artifact], names: Sequence[str]) -> list[Artifact]:
    found = {artifact.name: artifact for artifact in artifacts}
    if missing := [name for name in names if name not in found]:
        known = ", ".join(quoted(name, 40) for name in [*found][:_NAMES_SHOWN]) or "none"
        more = f" and {len(found) - _NAMES_SHOWN} more" if len(found) > _NAMES_SHOWN else ""
        raise UnknownArtifact(f"names: unknown artifact {quoted(missing[0])}", f"available: {known}{more}")
    return [found[name] for name in dict.fromkeys(names)] if names else [*found.values()]


async def _get_part(service: Service, arguments: GetArtifacts, found: Artifact) -> CallToolResult:
    session_id, start = arguments.session_id, arguments.offset
    if start > found.size:
        raise InvalidArgument(f"offset must be at most {found.size}, the artifact's size; got {start}")
    length = min(max(arguments.length or LONGEST_TEXT, LONGEST_CHARACTER), LONGEST_TEXT)
    _, data = await service.files.read_artifact(session_id, found.name, start, length)
    if b"\0" in data and not found.mime_type.startswith("text/"):
        raise InvalidArgument(
            f"names: {quoted(found.name)} is not text", "leave out offset and length to get it, or a link to it"
        )
    if start + len(data) < found.size:
        data = whole_end(data)
    end, text = start + len(data), data.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    goes_on = end < found.size
    read = f"{one_line(found.name)}: bytes {start} to {end} of {found.size}"
    more = f"; call again with offset {end}" if goes_on else ""
    answer = Artifacts(
        session_id=session_id,
        artifacts=[item(session_id, found)],
        text=text,
        next_offset=end if goes_on else 0,
        saved=[],
    )
    return success(f"{read}{more}\n{text}", answer)
