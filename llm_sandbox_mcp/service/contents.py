"""What a session is by value: written into a state, read from one into a new sandbox, or copied to another session."""

from collections import deque
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import UTC, datetime

import anyio

from .. import __version__
from ..aio.tasks import open_tasks
from ..backends.base import Sandbox
from ..base.errors import BadState, SandboxError, UnknownArtifact, quoted
from ..base.messages import Note
from ..base.policy import LEAST, LIMITS, Policy, narrow
from ..base.results import Missing, OnProgress, Opened, SavedSession
from ..files.artifacts import is_inner
from ..sessions.session import Session
from ..state import packing
from ..state.encoding import Section
from ..state.manifest import FORMAT, KeptFile, Manifest
from ..state.packing import Packed
from ..state.saved import Reader, Writer
from .parts import Parts
from .preparation import Preparation
from .variables import Variables

_AGAIN = "delete it, and save the session again"
_SMALLEST = 0.001
_FILES, _ARTIFACTS = "files", "artifacts"
"""The sections of a state: a tar archive with the variables in it, and the contents of all artifacts."""
_PIECES = 4
"""Pieces of a stream on their way from one sandbox to another."""


class Contents:
    """Variables, files, libraries and artifacts of sessions; for each method, the caller has the sessions' turns."""

    def __init__(self, parts: Parts, preparation: Preparation) -> None:
        self._policy = parts.profile.policy()
        self._languages = parts.languages
        self._store = parts.store
        self._installer = parts.installer
        self._preparation = preparation
        self._variables = Variables(parts, preparation)

    def frame(self, manifest: Manifest) -> tuple[str, Policy]:
        """The language and the policy of the session that a state is opened in, by today's profile."""
        name = manifest.language
        if name not in self._languages:
            raise BadState(f"{quoted(manifest.name)} needs {quoted(name, 40)}, which this server does not have")
        return self._languages[name].name, narrow(self._policy, _within(manifest.limits, self._policy))

    async def write(
        self, session: Session, sandbox: Sandbox, writer: Writer, name: str, *, tmp: bool, interrupted: bool = False
    ) -> SavedSession:
        """Writes all that a session has as the state of that name; with `tmp`, also the files in /tmp.

        `interrupted`: its code was interrupted for this.
        """
        writer.begin(_FILES)
        async with self._variables.saved(session, sandbox) as variables:
            packed = await packing.pack(sandbox, variables.reasons, writer.add, tmp=tmp)
            variables.take(packed.reports)
        await writer.end()
        artifacts = await self._write_artifacts(session, writer)

        def describe(sections: Sequence[Section]) -> Manifest:
            return Manifest(
                format=FORMAT,
                name=name,
                created=datetime.now(UTC),
                version=__version__,
                language=session.language,
                runs=session.runs,
                interrupted=interrupted,
                untold=tuple(map(str, session.untold)),
                variables=variables.kept,
                files=packed.files,
                missing=(*variables.missing, *packed.missing),
                limits=_lowered(session.policy, self._policy),
                artifacts=artifacts,
                sections=tuple(sections),
            )

        return (await writer.complete(describe)).described(variables.notes)

    async def read(self, session: Session, sandbox: Sandbox, reader: Reader, on_progress: OnProgress | None) -> Opened:
        """Reads a state into a new sandbox; raises `BadState` if it is damaged or does not fit."""
        manifest = reader.manifest
        if on_progress is not None:
            await on_progress(f"opening {manifest.name}: {manifest.files} files")
        libraries, lost = await _unpack(session, sandbox, lambda: reader.section(_FILES))
        for known in [self._languages[one] for one in libraries if one in self._languages]:
            await self._installer.check_installed(sandbox, await self._preparation.places(known))
        notes = await self._read_artifacts(session, reader)
        if on_progress is not None:
            await on_progress(f"opening {manifest.name}: variables")
        variables = await self._variables.open(session, sandbox, manifest.variables, on_progress)
        session.go_on(manifest.runs, variables.kept)
        missing = (*manifest.missing, *lost, *variables.missing)
        return Opened(session.id, session.language, variables.kept, manifest.files, missing, (*variables.notes, *notes))

    async def copy(
        self, session: Session, sandbox: Sandbox, second: Session, new: Sandbox, on_progress: OnProgress | None
    ) -> Opened:
        """Copies all that a session has, with /tmp, into the new sandbox of a second one."""
        async with self._variables.saved(session, sandbox) as variables:
            packed, lost = await _pass_on(sandbox, variables.reasons, second, new)
            variables.take(packed.reports)
        for artifact in self._store.of_session(session.id):
            _, content = await self._store.read(session.id, artifact.name)
            await self._store.put(second, artifact.name, content)
        opened = await self._variables.open(second, new, variables.kept, on_progress)
        second.go_on(session.runs, opened.kept)
        missing = (*variables.missing, *packed.missing, *lost, *opened.missing)
        return Opened(second.id, second.language, opened.kept, packed.files, missing, (*variables.notes, *opened.notes))

    async def _write_artifacts(self, session: Session, writer: Writer) -> tuple[KeptFile, ...]:
        kept: list[KeptFile] = []
        writer.begin(_ARTIFACTS)
        for artifact in self._store.of_session(session.id):
            try:
                _, content = await self._store.read(session.id, artifact.name)
            except UnknownArtifact:  # it made room for others meanwhile
                continue
            await writer.add(content)
            kept.append(KeptFile(name=artifact.name, size=len(content)))
        await writer.end()
        return tuple(kept)

    async def _read_artifacts(self, session: Session, reader: Reader) -> list[Note]:
        """Stores the artifacts of a state; returns a note if there is no room for all of them."""
        content, left = bytearray(), deque(reader.manifest.artifacts)
        if not all(is_inner(file.name) for file in left):
            raise BadState(f"{quoted(reader.manifest.name)} is damaged: an artifact has an impossible name", _AGAIN)
        async for piece in reader.section(_ARTIFACTS):
            content += piece
            while left and len(content) >= left[0].size:
                file = left.popleft()
                await self._store.put(session, file.name, bytes(content[: file.size]))
                del content[: file.size]
        if any(file.size for file in left):
            raise BadState(f"{quoted(reader.manifest.name)} is damaged: artifacts are missing", _AGAIN)
        for file in left:  # they are empty
            await self._store.put(session, file.name, b"")
        lost = len(reader.manifest.artifacts) - len(self._store.of_session(session.id))
        if lost <= 0:
            return []
        cause = f"{lost} artifacts of the saved session are not back: there is no room for them"
        step = "the operator can raise artifacts.store and artifacts.store_files"
        return [Note("artifacts_lost", cause, step, number=lost)]


async def _unpack(
    session: Session, sandbox: Sandbox, content: packing.Content
) -> tuple[Sequence[str], Sequence[Missing]]:
    """Unpacks files into a new session; returns the languages that have libraries, and the files that are missing."""
    languages, missing = await packing.unpack(sandbox, content)
    for name in languages:
        await session.use_libraries(name, ())  # an interpreter that waits has not seen them
    return languages, missing


async def _pass_on(
    source: Sandbox, languages: Collection[str], second: Session, sandbox: Sandbox
) -> tuple[Packed, Sequence[Missing]]:
    """Copies the files of one session into another, while they are read; returns also those that are missing there."""
    failed, lost = list[SandboxError](), list[Missing]()
    send, receive = anyio.create_memory_object_stream[bytes](_PIECES)

    async def content() -> AsyncIterator[bytes]:
        async for piece in receive:
            yield piece

    async def fill() -> None:
        with receive:
            try:
                lost.extend((await _unpack(second, sandbox, content))[1])
            except SandboxError as error:
                failed.append(error)
                return
            async for _ in receive:  # what comes after the end of the archive
                pass

    packed = Packed()
    async with open_tasks() as tasks:
        tasks.start_soon(fill)
        with send:
            try:
                packed = await packing.pack(source, languages, send.send, tmp=True)
            except anyio.BrokenResourceError:
                if not failed:
                    raise
    if failed:
        raise failed[0]
    return packed, lost


def _lowered(policy: Policy, widest: Policy) -> dict[str, float]:
    """The limits of a policy that are lower than those of the profile."""
    return {name: getattr(policy, name) for name in LIMITS if getattr(policy, name) < getattr(widest, name)}


def _within(limits: Mapping[str, float], widest: Policy) -> dict[str, float]:
    """Those limits that are lower than the profile's, as it is today, and with which a sandbox starts."""
    return {
        name: type(getattr(widest, name))(value)
        for name, value in limits.items()
        if name in LIMITS and max(LEAST.get(name, 0), _SMALLEST) <= value < getattr(widest, name)
    }
