"""Draws the pictures that cannot be shown as they are as one small picture, in the sandbox that has them."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial

import anyio
import anyio.to_thread

from ..backends.base import OnBytes, Sandbox
from ..backends.layout import FIGURES, WORKDIR
from ..base.errors import SandboxError
from ..base.results import Artifact, Overview
from ..files.pictures import LARGEST, can_be_shown
from ..sessions.session import Session
from .parts import Parts

_MOST = 25
"""Pictures on one overview."""
_SECONDS = 15.0
"""Longer than the program works on its pictures."""


class Overviews:
    """Makes overviews with the first language that has a program for that, in sandboxes of all languages."""

    def __init__(self, parts: Parts) -> None:
        self._language = next((one for one in parts.languages.values() if one.handler.overview), None)
        self._preparer = parts.preparer
        self._store = parts.store
        self._sessions = parts.live

    async def of_run(self, session: Session, sandbox: Sandbox, artifacts: Sequence[Artifact]) -> Overview | None:
        """The overview of those pictures of a run that are not shown as they are; None if all are."""
        rest = (await self._store.pictures(session.id, artifacts)).rest
        return await self._made(session, sandbox, rest) if rest else None

    async def of_artifacts(self, session_id: str, artifacts: Sequence[Artifact]) -> Overview | None:
        """The same, of artifacts from any runs: while the session is open and no code runs in it."""
        rest = (await self._store.pictures(session_id, artifacts)).rest
        if not rest:
            return None
        try:
            session = self._sessions.get(session_id)
            if session.busy:
                return Overview(lacking="code runs in the session")
            async with session.exclusive():
                if not session.has_sandbox:
                    return Overview(lacking="its sandbox has ended")
                return await self._made(session, await session.sandbox(), rest)
        except SandboxError:
            return Overview(lacking="the session has ended")

    async def _made(self, session: Session, sandbox: Sandbox, pictures: Sequence[Artifact]) -> Overview:
        """What the program prints is from inside the sandbox, and checked like any picture from there."""
        shown = pictures[:_MOST]
        lacking = Overview(lacking="the sandbox could not make them smaller")
        wanted = [([f"{folder}/{one.name}" for folder in (WORKDIR, FIGURES)], one.size) for one in shown]
        with session.aside(_SECONDS) as scope, suppress(SandboxError):
            if self._language is None or not await self._preparer.ready(self._language):
                return lacking
            places = await self._preparer.places(self._language)
            argv, env = places.argv(self._language.handler.overview), places.env(sandbox.path)
            given, enough = _once(json.dumps(wanted)), partial(_until_too_long, scope)
            made = await sandbox.run(argv, env, stdin=given, most=LARGEST + 1, on_output=enough)
            printed = made.stdout if made.exit_code == 0 else b""
            if picture := await anyio.to_thread.run_sync(_checked, printed):
                return Overview(picture, tuple(one.name for one in shown))
        return lacking


def _until_too_long(scope: anyio.CancelScope) -> OnBytes:
    """Ends a program that prints more than any picture has: code can print forever in its name."""
    printed = 0

    async def count(part: bytes) -> None:
        nonlocal printed
        printed += len(part)
        if printed > LARGEST:
            scope.cancel()

    return count


def _checked(printed: bytes) -> bytes:
    return printed if can_be_shown(printed) else b""


async def _once(text: str) -> AsyncIterator[bytes]:
    yield text.encode()
