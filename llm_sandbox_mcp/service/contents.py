"""What a session is by value: written into a state, read from one into a new sandbox, or copied to another session."""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

import anyio

from .. import __version__
from ..aio.tasks import open_tasks
from ..backends.base import Sandbox
from ..base.errors import BadState, SandboxError, UnknownArtifact, quoted
from ..base.messages import Note
from ..base.policy import LEAST, LIMITS, Policy, narrow
from ..base.results import Missing, OnProgress, Opened, SavedSession
from ..base.text import one_line
from ..files.artifacts import is_inner
from ..sessions.session import Session
from ..state import packing
from ..state.changes import FOLDER, Seen
from ..state.encoding import Section
from ..state.manifest import FORMAT, KeptFile, Manifest
from ..state.reports import Packed
from ..state.saved import Saved
from ..state.streams import Reader, Writer
from .parts import Parts
from .preparation import Preparation
from .variables import UNABLE, Home, Kept, Variables

_AGAIN = "delete it, and save the session again"
_SMALLEST = 0.001
_FILES, _ARTIFACT = "files", "artifact"
"""The sections of a state: tar archives with the variables in them, and the contents of artifacts."""
_NAMED = 20
"""Things that are missing, each with a note of its own."""
_PIECES = 4
"""Pieces of a stream on their way from one sandbox to another."""


@dataclass(frozen=True, slots=True)
class Base:
    """A state of a session that the store has, while the session goes on."""

    manifest: Manifest
    artifacts: Mapping[str, KeptFile]
    """By the marks that they have in this server."""
    seen: Seen
    """The files and variables."""


class Unready(Exception):
    """The folders for variables are not as the last call left them."""


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

    async def write(self, session: Session, sandbox: Sandbox, writer: Writer, name: str, *, tmp: bool) -> SavedSession:
        """Writes all that a session has as the state of that name; with `tmp`, also the files in /tmp."""
        writer.begin(_FILES)
        async with self._variables.saved(session, sandbox) as variables:
            packed = await packing.pack(sandbox, variables.reasons, writer.add, tmp=tmp)
            variables.take(packed.reports)
        layers = [await writer.end()]
        artifacts = await self._write_artifacts(session, writer, {})
        manifest = self._describe(session, name, variables, packed, layers, [*artifacts.values()])
        size = await writer.complete(manifest)
        return Saved(name, size, manifest).described(variables.notes)

    async def write_changes(
        self, session: Session, sandbox: Sandbox, writer: Writer, base: Base | None, ready: Collection[str]
    ) -> Base:
        """Writes what has changed since the state that is the base, or all if there is none, as the next one.

        Returns the base itself if nothing has changed, and nothing was written. `ready` are the languages whose
        folders are as the last call left them; raises `Unready` if they are not.
        """

        async def begin(sandbox: Sandbox, languages: Iterable[str]) -> None:
            if base is None or not set(languages).issubset(ready):
                await packing.begin_changes(sandbox, languages, base.seen if base is not None else Seen())

        writer.begin(_FILES)
        async with self._variables.saved(session, sandbox, begin) as variables:
            before = base.seen if base is not None else None
            packed = await packing.pack_changes(sandbox, variables.reasons, writer.add, before)
            variables.take(packed.reports)
        assert packed.changes is not None
        able = [name for name, reason in variables.reasons.items() if reason != UNABLE]
        if base is not None and any(_is_missing(name, packed) for name in able):
            raise Unready  # code has removed or replaced the folders
        known = base.artifacts if base is not None else {}
        same = base is not None and not (packed.changes.changed or packed.changes.gone)
        if base is not None and same and not session.interrupted:
            told_is_same = base.manifest.untold == tuple(map(str, session.news.untold))
            if told_is_same and known.keys() == set(self._store.marks(session.id).values()):
                return base
        layer = await writer.end()
        # The files and variables can be the same, and something else has changed.
        layers = [*(base.manifest.layers if base is not None else ()), *([] if same else [layer])]
        artifacts = await self._write_artifacts(session, writer, known)
        manifest = self._describe(session, session.id, variables, packed, layers, [*artifacts.values()], base)
        await writer.complete(manifest)
        return Base(manifest, artifacts, packed.changes.seen)

    def _describe(
        self,
        session: Session,
        name: str,
        variables: Kept,
        packed: Packed,
        layers: Sequence[Section],
        artifacts: Sequence[KeptFile],
        base: Base | None = None,
    ) -> Manifest:
        earlier = base.manifest.missing if base is not None else ()
        changes = packed.changes
        again = {*changes.changed, *changes.gone} if changes is not None else set()
        # What is packed again names only what has changed.
        still_missing = [
            one
            for one in earlier
            if not one.language and one not in packed.missing and one.name.split(":")[0][1:].encode() not in again
        ]
        return Manifest(
            format=FORMAT,
            name=name,
            created=datetime.now(UTC),
            version=__version__,
            language=session.language,
            runs=session.cells,
            interrupted=session.interrupted,
            untold=tuple(map(str, session.news.untold)),
            variables=variables.kept,
            files=packed.files,
            libraries=tuple(sorted({*packed.libraries, *(base.manifest.libraries if base is not None else ())})),
            missing=(*variables.missing, *packed.missing, *still_missing),
            limits=lowered(session.policy, self._policy),
            artifacts=tuple(artifacts),
            layers=tuple(layers),
        )

    async def read(
        self,
        session: Session,
        sandbox: Sandbox,
        reader: Reader,
        on_progress: OnProgress | None,
    ) -> Opened:
        """Reads a state into a new sandbox; raises `BadState` if it is damaged or does not fit."""
        opened = await self.read_bare(session, sandbox, reader, on_progress)
        notes = await self._read_artifacts(session, reader)
        return replace(opened, notes=(*opened.notes, *notes))

    async def read_bare(
        self,
        session: Session,
        sandbox: Sandbox,
        reader: Reader,
        on_progress: OnProgress | None = None,
        missing: Sequence[Missing] | None = None,
    ) -> Opened:
        """Reads a state without its artifacts; `missing`: its files are there already, but for these."""
        manifest = reader.manifest
        if missing is None:
            if on_progress is not None:
                await on_progress(f"opening {manifest.name}: {manifest.files} files")
            missing = await self.unpack(sandbox, reader)
        opened = await self.use(session, sandbox, manifest, missing, on_progress)
        session.go_on(manifest.runs, opened.kept)
        lost = (*manifest.missing, *opened.missing)
        return Opened(session.id, session.language, opened.kept, manifest.files, lost, tuple(opened.notes))

    async def unpack(self, sandbox: Sandbox, reader: Reader) -> Sequence[Missing]:
        """Unpacks the files of a state, those with variables too, in a new sandbox; returns those that are missing.

        Raises `BadState` if it is damaged or does not fit.
        """
        manifest, most = reader.manifest, sandbox.policy.files
        missing = await packing.unpack(sandbox, [partial(reader.section, layer) for layer in manifest.layers])
        if manifest.files > most and (await sandbox.fullness(thorough=True)).entries > most:
            cause = f"the files do not fit: a folder can have {most} (limits.files in the profile)"
            raise BadState(cause, "only the operator can raise it")
        return missing

    async def use(
        self,
        home: Home,
        sandbox: Sandbox,
        manifest: Manifest,
        missing: Sequence[Missing],
        on_progress: OnProgress | None,
    ) -> Kept:
        """Opens the variables of a state whose files were unpacked, but for those that are missing; returns what became
        of all."""
        await _use(home, manifest.libraries)
        for known in [self._languages[one] for one in manifest.libraries if one in self._languages]:
            await self._installer.check_installed(sandbox, await self._preparation.places(known))
        if on_progress is not None:
            await on_progress(f"opening {manifest.name}: variables")
        opened = await self._variables.open(home, sandbox, manifest.variables, on_progress)
        opened.missing[:0] = missing
        await sandbox.new_outside()  # so that its first run looks only for what it leaves itself
        return opened

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
        second.go_on(session.cells, opened.kept)
        missing = (*variables.missing, *packed.missing, *lost, *opened.missing)
        return Opened(second.id, second.language, opened.kept, packed.files, missing, (*variables.notes, *opened.notes))

    async def _write_artifacts(
        self, session: Session, writer: Writer, known: Mapping[str, KeptFile]
    ) -> dict[str, KeptFile]:
        """Writes the artifacts of a session that are not known; returns all by their marks."""
        kept: dict[str, KeptFile] = {}
        for name, mark in self._store.marks(session.id).items():
            if mark in known:
                kept[mark] = known[mark]
                continue
            try:
                _, content = await self._store.read(session.id, name)
            except UnknownArtifact:  # it made room for others meanwhile
                continue
            writer.begin(_ARTIFACT)
            await writer.add(content)
            kept[mark] = KeptFile(name=name, content=await writer.end())
        return kept

    async def _read_artifacts(self, session: Session, reader: Reader) -> list[Note]:
        """Stores the artifacts of a state; returns a note if there is no room for all of them."""
        artifacts = reader.manifest.artifacts
        if not all(is_inner(file.name) for file in artifacts):
            raise BadState(f"{quoted(reader.manifest.name)} is damaged: an artifact has an impossible name", _AGAIN)
        for file in artifacts:
            content = b"".join([piece async for piece in reader.section(file.content)])
            await self._store.put(session, file.name, content)
        lost = len(artifacts) - len(self._store.of_session(session.id))
        if lost <= 0:
            return []
        cause = f"{lost} artifacts of the saved session are not back: there is no room for them"
        step = "the operator can raise artifacts.store and artifacts.store_files"
        return [Note("artifacts_lost", cause, step, number=lost)]


def _is_missing(language: str, packed: Packed) -> bool:
    """Whether a language has nothing of what it must have saved."""
    own = f"{FOLDER.removeprefix('/')}/{language}/".encode()
    report, changes = packed.reports.get(language), packed.changes
    found = changes is not None and any(path.startswith(own) for path in changes.seen.variables)
    return report is None or report.kept is None or not found


async def _use(home: Home, languages: Iterable[str]) -> None:
    """Lets the interpreters of languages whose libraries were unpacked know: those that wait have not seen them."""
    for name in languages:
        await home.use_libraries(name, ())


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
                lost.extend(await packing.unpack(sandbox, [content]))
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
    await _use(second, packed.libraries)
    return packed, lost


def notes_of(missing: Sequence[Missing]) -> list[Note]:
    """What a caller must know of what is missing; the last note has the number of those that are not named."""
    notes = [Note("not_kept", f"not kept: {one_line(str(one))}") for one in missing[:_NAMED]]
    if (more := len(missing) - _NAMED) > 0:
        notes.append(Note("not_kept", f"not kept: {more} more variables or files"))
    return notes


def lowered(policy: Policy, widest: Policy) -> dict[str, float]:
    """The limits of a policy that are lower than those of the profile."""
    return {name: getattr(policy, name) for name in LIMITS if getattr(policy, name) < getattr(widest, name)}


def _within(limits: Mapping[str, float], widest: Policy) -> dict[str, float]:
    """Those limits that are lower than the profile's, as it is today, and with which a sandbox starts."""
    return {
        name: type(getattr(widest, name))(value)
        for name, value in limits.items()
        if name in LIMITS and max(LEAST.get(name, 0), _SMALLEST) <= value < getattr(widest, name)
    }
