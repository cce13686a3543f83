"""Saves sessions under a name, opens them again, and branches them: as a copy by value, never as a live process."""

from collections import deque
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import UTC, datetime

import anyio

from .. import __version__
from ..aio.tasks import open_tasks
from ..backends.base import Sandbox
from ..base.errors import (
    BadState,
    InvalidArgument,
    PolicyDenied,
    SandboxError,
    UnknownArtifact,
    quoted,
)
from ..base.messages import Note
from ..base.policy import LEAST, LIMITS, Policy, narrow
from ..base.principal import ANONYMOUS, Principal
from ..base.results import Missing, OnProgress, Opened, SavedSession
from ..files.artifacts import is_inner
from ..sessions.session import Session
from ..state import packing
from ..state.encoding import Section
from ..state.manifest import FORMAT, KeptFile, Manifest
from ..state.packing import Packed
from ..state.saved import Reader, Writer, checked_name
from .parts import Parts
from .preparation import Preparation
from .variables import Variables

_FRESH = "run code in it first"
_AGAIN = "delete it, and save the session again"
_SMALLEST = 0.001
_FILES, _ARTIFACTS = "files", "artifacts"
"""The sections of a state: a tar archive with the variables in it, and the contents of all artifacts."""
_PIECES = 4
"""Pieces of a stream on their way from one sandbox to another."""


class States:
    """The saved sessions of all callers."""

    def __init__(self, parts: Parts, preparation: Preparation) -> None:
        self._policy = parts.profile.policy()
        self._languages = parts.languages
        self._live = parts.live
        self._store = parts.store
        self._saved = parts.saved
        self._installer = parts.installer
        self._preparation = preparation
        self._variables = Variables(parts, preparation)

    async def save(self, caller: Principal, session_id: str, name: str, *, tmp: bool = False) -> SavedSession:
        """Saves the variables, files, libraries and artifacts of a session, which goes on unchanged.

        A state of that name is replaced, as a whole. `tmp`: also the files in /tmp. Variables and files that cannot be
        kept are named in the result, and cost no others.
        """
        _check_known(caller)
        checked_name(name)
        session = self._live.get(session_id)
        async with session.exclusive():
            sandbox = await _with_state(session)
            async with self._saved.writing(caller, name) as writer:
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
                        variables=variables.kept,
                        files=packed.files,
                        missing=(*variables.missing, *packed.missing),
                        limits=_lowered(session.policy, self._policy),
                        artifacts=artifacts,
                        sections=tuple(sections),
                    )

                saved = await writer.complete(describe)
        return saved.described(variables.notes)

    async def open(self, caller: Principal, name: str, on_progress: OnProgress | None = None) -> Opened:
        """Opens a saved session as a new one, within the limits of today's profile; the saved one stays.

        Raises `UnknownState`, and `BadState` if it is damaged or does not fit.
        """
        _check_known(caller)
        tell = on_progress or _tell_nobody
        async with self._saved.reading(caller, name) as reader:
            manifest = reader.manifest
            policy = narrow(self._policy, _within(manifest.limits, self._policy))
            if manifest.language not in self._languages:
                raise BadState(f"{quoted(name)} needs {quoted(manifest.language, 40)}, which this server does not have")
            language = self._languages[manifest.language].name
            session = self._live.open(language, policy, caller)
            try:
                async with session.exclusive():
                    await tell(f"opening {name}: {manifest.files} files")
                    sandbox = await self._preparation.sandbox(session, self._languages[language], on_progress)
                    libraries, lost = await _unpack(session, sandbox, lambda: reader.section(_FILES))
                    for known in [self._languages[one] for one in libraries if one in self._languages]:
                        await self._installer.check_installed(sandbox, await self._preparation.places(known))
                    notes = await self._read_artifacts(session, reader)
                    await tell(f"opening {name}: variables")
                    variables = await self._variables.open(session, sandbox, manifest.variables, on_progress)
                    session.go_on(manifest.runs, variables.kept)
            except BaseException:
                self._drop(session)
                raise
        missing = (*manifest.missing, *lost, *variables.missing)
        return Opened(session.id, language, variables.kept, manifest.files, missing, (*variables.notes, *notes))

    async def branch(self, caller: Principal, session_id: str, on_progress: OnProgress | None = None) -> Opened:
        """Opens a second session that starts where this one stands, with /tmp; both go on separately."""
        session = self._live.get(session_id)
        async with session.exclusive():
            sandbox = await _with_state(session)
            second = self._live.open(session.language, session.policy, caller)
            try:
                async with second.exclusive():
                    language = self._languages[session.language]
                    new = await self._preparation.sandbox(second, language, on_progress)
                    async with self._variables.saved(session, sandbox) as variables:
                        packed, lost = await _pass_on(sandbox, variables.reasons, second, new)
                        variables.take(packed.reports)
                    for artifact in self._store.of_session(session.id):
                        _, content = await self._store.read(session.id, artifact.name)
                        await self._store.put(second, artifact.name, content)
                    opened = await self._variables.open(second, new, variables.kept, on_progress)
                    second.go_on(session.runs, opened.kept)
            except BaseException:
                self._drop(second)
                raise
        missing = (*variables.missing, *packed.missing, *lost, *opened.missing)
        notes = (*variables.notes, *opened.notes)
        return Opened(second.id, session.language, opened.kept, packed.files, missing, notes)

    async def saved(self, caller: Principal) -> tuple[SavedSession, ...]:
        """The saved sessions of a caller, the latest first."""
        _check_known(caller)
        return tuple([one.described() for one in await self._saved.all(caller)])

    async def delete(self, caller: Principal, name: str) -> None:
        """Deletes a saved session with all of its bytes; live sessions stay."""
        _check_known(caller)
        await self._saved.delete(caller, name)

    async def use(self, caller: Principal) -> str:
        """How much a caller has saved, against the bounds, in words."""
        return await self._saved.use(caller)

    def _drop(self, session: Session) -> None:
        if not session.closed:
            self._live.close(session.id)

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


async def _with_state(session: Session) -> Sandbox:
    """The sandbox of a session; `InvalidArgument` if there is nothing in it that could be saved."""
    if session.has_sandbox:
        sandbox = await session.sandbox()  # which also finds out which interpreters have ended
        if session.has(sandbox) and (session.loss is None or session.loss.language):
            return sandbox
    raise InvalidArgument(f"session {quoted(session.id, 40)} has no state that could be saved", _FRESH)


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


async def _tell_nobody(_line: str) -> None:
    return


def _check_known(caller: Principal) -> None:
    if caller == ANONYMOUS:
        raise PolicyDenied(
            "sessions are saved only for callers that the server knows", "the operator can set http.token_file"
        )


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
