"""Files that runs left behind: copied out of the sandbox, limited in size and number, and kept when it ends."""

import itertools
import posixpath
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread

from ..backends import copying
from ..backends.archive import Member
from ..backends.base import Sandbox
from ..backends.layout import ALIAS, FIGURES, WORKDIR
from ..base.errors import BadPath, SandboxLost, Unavailable, UnknownArtifact, quoted
from ..base.messages import Note, Step
from ..base.principal import Principal
from ..base.results import Artifact, StoreStatistics
from ..base.text import one_line
from ..base.units import format_size
from ..profile.sections import ArtifactLimits
from ..runs.protocol import MAX_FILES, Report
from ..runs.run import Outcome
from .images import identify
from .media import mime_type
from .pictures import Pictures, can_be_shown, choose, may_be_shown

_PATH_MAX, _NAME_MAX = 1024, 255
_RELATIVE = "use a relative path such as data/table.csv"


def inner_path(path: str) -> str:
    """The relative, normalized form of a path below the working directory that a caller named.

    Raises `BadPath` if the path leads outside, is empty, or cannot be a file name.
    """
    if (
        "\0" in path
        or len(path.encode(errors="surrogatepass")) > _PATH_MAX
        or any("\ud800" <= c <= "\udfff" for c in path)
    ):
        raise BadPath(f"path must be valid text without NUL, at most {_PATH_MAX} bytes", _RELATIVE)
    below = path.removeprefix(f"{ALIAS}/" if path.startswith(f"{ALIAS}/") else f"{WORKDIR}/")
    normal = posixpath.normpath(below)
    if not path or below.endswith("/") or posixpath.isabs(below) or normal in (".", "..") or normal.startswith("../"):
        raise BadPath(f"path {quoted(path)} must name a file below {WORKDIR}", _RELATIVE)
    if any(len(name.encode()) > _NAME_MAX for name in normal.split("/")):
        raise BadPath(f"path {quoted(path)} has a name of more than {_NAME_MAX} bytes", "shorten it")
    return normal


def is_inner(name: str) -> bool:
    """Whether a name from inside a sandbox is such a path, already normalized."""
    try:
        return inner_path(name) == name
    except BadPath:
        return False


def describe(name: str, content: bytes) -> Artifact:
    """A file as an artifact, with its size in pixels if it is an image of the kind that its name suggests."""
    kind = mime_type(name)
    image = identify(content)
    if image is None or image.mime_type != kind:
        return Artifact(name, kind, len(content))
    return Artifact(name, kind, len(content), image.width, image.height)


class Owned(Protocol):
    """A session, which artifacts come from."""

    @property
    def id(self) -> str:
        """The name that callers know."""

    @property
    def owner(self) -> Principal:
        """Who its artifacts belong to."""


@dataclass(slots=True)
class _Kept:
    artifact: Artifact
    file: Path
    viewable: bool | None = None
    """Whether models can look at it; None until that is asked."""


class ArtifactStore:
    """Artifacts by session and name, on disk, limited in number and bytes.

    To make room, the session that has most drops its oldest; what was just stored stays.
    Names come from inside sandboxes, so files are stored under numbers, never under their names.
    """

    def __init__(self, folder: Path, limits: ArtifactLimits) -> None:
        self._folder = folder
        self._limits = limits
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
        self._size = 0
        self._sizes: Counter[str] = Counter()
        """Bytes of each session's."""
        self._files: Counter[str] = Counter()
        self._owners: dict[str, Principal] = {}
        self._numbers = itertools.count(1)
        self._listeners: list[Callable[[str, tuple[str, ...]], None]] = []
        self._judging = anyio.CapacityLimiter(1)

    def listen(self, listener: Callable[[str, tuple[str, ...]], None]) -> None:
        """Registers a callback that gets session id and names whenever artifacts are added, changed or dropped."""
        self._listeners.append(listener)

    def statistics(self) -> StoreStatistics:
        """The number and size of the stored artifacts."""
        return StoreStatistics(len(self._kept), self._size)

    def owner(self, session_id: str) -> Principal | None:
        """Who the artifacts of a session belong to; None if it has none."""
        return self._owners.get(session_id)

    def of_session(self, session_id: str) -> tuple[Artifact, ...]:
        """The artifacts of a session, oldest first."""
        return tuple(kept.artifact for (session, _), kept in self._kept.items() if session == session_id)

    def marks(self, session_id: str) -> dict[str, str]:
        """By name, what is another one for each content of each artifact of a session."""
        return {name: kept.file.name for (session, name), kept in self._kept.items() if session == session_id}

    async def read(self, session_id: str, name: str, offset: int = 0, length: int = -1) -> tuple[Artifact, bytes]:
        """An artifact and its content, or so many bytes of it; `UnknownArtifact` if it is not in the store."""
        unknown = UnknownArtifact(f"unknown artifact {quoted(name)} in this session", Step.OTHER_ARTIFACT)
        kept = self._kept.get((session_id, name))
        if kept is None:
            raise unknown
        try:
            return kept.artifact, await anyio.to_thread.run_sync(_read, kept.file, offset, length)
        except FileNotFoundError:  # it was dropped meanwhile
            raise unknown from None

    async def picture(self, session_id: str, name: str) -> bytes | None:
        """The content of an image that models can look at; None for any other artifact, and if it is not in the store.

        An artifact is judged once, when this is first asked, and one at a time: code chose what it contains.
        """
        kept = self._kept.get((session_id, name))
        if kept is None or not may_be_shown(kept.artifact):
            return None

        def judge() -> None:
            if kept.viewable is None:
                kept.viewable = can_be_shown(kept.file.read_bytes())

        try:
            if kept.viewable is None:
                await anyio.to_thread.run_sync(judge, limiter=self._judging)
            return await anyio.Path(kept.file).read_bytes() if kept.viewable else None
        except FileNotFoundError:  # it was dropped meanwhile
            return None

    async def pictures(self, session_id: str, artifacts: Sequence[Artifact]) -> Pictures:
        """Which of these artifacts that are pictures are shown as they are, and which are not."""
        return await choose(artifacts, partial(self.picture, session_id))

    async def put(self, session: Owned, name: str, content: bytes) -> Artifact:
        """Stores a file and replaces an older one of the same name. Raises `Unavailable` if the disk is full."""
        artifact = describe(name, content)
        file = self._folder / str(next(self._numbers))
        try:
            await anyio.to_thread.run_sync(_write, file, content)
        except OSError as error:
            await anyio.Path(file).unlink(missing_ok=True)
            cause = f"cannot store {quoted(name)}: {error.strerror}"
            raise Unavailable(cause, "free disk space on the server") from error
        await self._drop((session.id, name))
        self._kept[session.id, name] = _Kept(artifact, file)
        self._owners[session.id] = session.owner
        self._count(session.id, artifact.size)
        self._notify(session.id, name)
        while len(self._kept) > 1 and (most := self._session_with_most(session.id, artifact.size)):
            oldest = next(key for key in self._kept if key[0] == most)
            await self._drop(oldest)
            self._notify(*oldest)
        return artifact

    async def clear(self, session_id: str) -> None:
        """Deletes all artifacts of a session."""
        names = [artifact.name for artifact in self.of_session(session_id)]
        for name in names:
            await self._drop((session_id, name))
        if names:
            self._notify(session_id, *names)

    def _session_with_most(self, session_id: str, size: int) -> str:
        """The session that has to make room, if there is too little; the latest file, of this size, does not count."""
        if self._size > self._limits.store:
            taken, latest = self._sizes, size
        elif len(self._kept) > self._limits.store_files:
            taken, latest = self._files, 1
        else:
            return ""
        others = (session for session, files in self._files.items() if files > (session == session_id))
        return max(others, key=lambda session: taken[session] - latest * (session == session_id))

    def _count(self, session_id: str, size: int, files: int = 1) -> None:
        self._size += size
        self._sizes[session_id] += size
        self._files[session_id] += files
        if not self._files[session_id]:
            del self._files[session_id], self._sizes[session_id], self._owners[session_id]

    def _notify(self, session_id: str, *names: str) -> None:
        for listener in self._listeners:
            listener(session_id, names)

    async def _drop(self, key: tuple[str, str]) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._count(key[0], -kept.artifact.size, -1)
            await anyio.Path(kept.file).unlink(missing_ok=True)

    async def collect(
        self, session: Owned, sandbox: Sandbox | None, outcome: Outcome, long: Mapping[str, bytes]
    ) -> tuple[list[Artifact], list[Note]]:
        """Stores what a run left behind; returns the artifacts, and a note for each thing that could not be stored.

        These are the files and figures in its report, copied out of the sandbox if it still exists, and streams that
        are too long to show.
        """
        found: list[Artifact] = []
        notes: list[Note] = []
        report = outcome.report if sandbox is not None else None
        if not long and (report is None or not (report.files or report.figures or report.files_omitted)):
            return found, notes
        before = {artifact.name for artifact in self.of_session(session.id)}
        try:
            for name, data in long.items():
                found.append(await self.put(session, name, data))
            if sandbox is not None and report is not None:
                await self._collect(session, sandbox, report, found, notes)
        except (SandboxLost, Unavailable) as error:
            notes.append(Note("artifacts_lost", f"some files were not kept: {error.cause}", error.step))
        kept = [artifact for artifact in found if self._has(session.id, artifact)]
        most, size = self._limits.store_files, format_size(self._limits.store)
        keys = "artifacts.store_files and artifacts.store in the profile"
        bounds = f"the store keeps at most {most} files and {size} for all sessions together ({keys})"
        step = "write fewer, or smaller files"
        if gone := len(found) - len(kept):
            cause = f"{gone} files of this run were dropped to make room for others; {bounds}"
            notes.append(Note("artifacts_lost", cause, step, number=gone))
        elif lost := before - {artifact.name for artifact in self.of_session(session.id)}:
            cause = f"{len(lost)} earlier artifacts of this session were dropped to make room; {bounds}"
            notes.append(Note("artifacts_replaced", cause, step, number=len(lost)))
        return kept, notes

    def _has(self, session_id: str, artifact: Artifact) -> bool:
        kept = self._kept.get((session_id, artifact.name))
        return kept is not None and kept.artifact is artifact

    async def _collect(
        self, session: Owned, sandbox: Sandbox, report: Report, found: list[Artifact], notes: list[Note]
    ) -> None:
        files = [name for name in report.files if is_inner(name)]
        figures = [name for name in report.figures if is_inner(name)]
        most = self._limits.files
        # A runner that lists fewer files than it may leaves out only those whose names it cannot list.
        unnamed = report.files_omitted if len(report.files) < MAX_FILES else 0
        if unnamed:
            cause = f"{unnamed} changed files were not kept: their names are not UTF-8, or very long"
            notes.append(Note("artifacts_unnamed", cause, "give them other names", number=unnamed))
        omitted = report.files_omitted - unnamed + max(0, len(files) + len(figures) - most)
        if omitted:
            limit = f"at most {most} (artifacts.files in the profile) are kept"
            cause = f"{omitted} more files were changed and not kept; {limit}"
            notes.append(Note("artifacts_omitted", cause, "put them into one file", number=omitted))
        figures = figures[:most]
        for folder, names in ((FIGURES, figures), (WORKDIR, files[: most - len(figures)])):
            await self._take(session, sandbox, folder, names, found, notes)

    async def _take(
        self,
        session: Owned,
        sandbox: Sandbox,
        folder: str,
        names: Sequence[str],
        found: list[Artifact],
        notes: list[Note],
    ) -> None:
        if not names:
            return
        expected = set(names)
        limit = self._limits.file_size

        async def take(member: Member) -> None:
            if member.name not in expected:
                return
            expected.discard(member.name)
            if member.size > limit:
                size = format_size(member.size)
                most = f"{format_size(limit)} (artifacts.file_size in the profile)"
                cause = f"{one_line(member.name)} ({size}) was not kept; the limit is {most}"
                step = "write a smaller file, or several files"
                notes.append(Note("artifact_too_large", cause, step, name=member.name, size=member.size, limit=limit))
            else:
                found.append(await self.put(session, member.name, bytes(member.content)))

        await copying.copy_out(sandbox, folder, names, limit, take)
        if expected:
            some = one_line(", ".join(sorted(expected))[:200])[:200]
            cause = f"{len(expected)} changed files could not be read: {some}"
            notes.append(Note("artifacts_unreadable", cause, number=len(expected)))


def _read(file: Path, offset: int, length: int) -> bytes:
    with file.open("rb") as opened:
        opened.seek(offset)
        return opened.read(length)


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(mode=0o700, exist_ok=True)
    file.write_bytes(content)
