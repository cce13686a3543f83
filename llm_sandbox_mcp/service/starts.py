"""Sessions that start from a saved one, where the profile says so: from a state that its user has prepared."""

import logging
from collections.abc import Mapping, Sequence

import anyio

from ..base.errors import BadState, StoreFailed, UnknownState, quoted
from ..base.messages import Note
from ..base.principal import USER
from ..base.results import OnProgress
from ..base.text import one_line
from ..runs.interpreters import Interpreters
from ..state.manifest import Manifest
from .contents import Contents
from .parts import Parts

_LOOK = 10.0
"""Seconds between two looks whether another state has the name, as when another program has saved it."""
_NAMED = 20
"""Things that are missing, each with a note of its own."""

_log = logging.getLogger(__name__)


class Starts:
    """The saved sessions that others start from: one for each language at most. Sandboxes that wait have it open."""

    def __init__(self, parts: Parts, contents: Contents) -> None:
        self.names: Mapping[str, str] = parts.profile.starts
        """Their names, by language."""
        self._pool = parts.pool
        self._saved = parts.saved
        self._contents = contents
        self._tags: dict[str, str] = {}
        """The oldest states that sandboxes which wait can have open, by language; empty for one that was not there."""
        self._failing = False
        """Whether the last look failed, which the log says once."""
        if self.names:
            self._pool.start, self._pool.starting = self.open, self.names.keys()
            parts.tasks.start_soon(self._follow)

    async def open(
        self, interpreters: Interpreters, language: str, on_progress: OnProgress | None = None
    ) -> Sequence[Note]:
        """Opens the one of a language in a new sandbox; returns what there is to tell of it.

        Raises `BadState` if it cannot be opened, and `StoreFailed`.
        """
        name = self.names[language]
        try:
            tag = await self._saved.tag(USER, name)
            # An older one can still be open in another sandbox that waits; what cannot be opened is looked at, too.
            self._tags.setdefault(language, tag)
            async with self._saved.reading(USER, name) as reader:
                _check_language(reader.manifest, language)
                opened = await self._contents.read_into(interpreters, interpreters.sandbox, reader, on_progress)
        except (BadState, UnknownState) as error:
            cause = f"sessions of {language} start from a saved one, and that cannot be opened: {error.cause}"
            key = f"languages.{language}.start"
            step = (
                f"the operator can save one as {quoted(name)} with a profile without {key}, or name another one there"
            )
            raise BadState(cause, step) from error
        interpreters.ran.update(opened.kept)
        lost = [Note("not_kept", f"not kept: {one_line(str(one))}") for one in opened.missing]
        if (more := len(lost) - _NAMED) > 0:
            lost[_NAMED:] = [Note("not_kept", f"not kept: {more} more variables or files")]
        return [*lost, *opened.notes]

    async def look(self) -> None:
        """Looks whether other states have these names now: sandboxes that wait are replaced then."""
        for language, tag in list(self._tags.items()):
            try:
                replaced = await self._saved.tag(USER, self.names[language]) != tag
            except StoreFailed as error:
                if not self._failing:
                    _log.warning(
                        "whether the state that sessions of %s start from was replaced is unknown: %s", language, error
                    )
                self._failing = True
                continue
            self._failing = False
            if replaced:
                self._tags.pop(language, None)
                self._pool.renew(language)

    async def _follow(self) -> None:
        while True:
            await anyio.sleep(_LOOK)
            await self.look()


def _check_language(manifest: Manifest, language: str) -> None:
    if manifest.language != language:
        raise BadState(f"{quoted(manifest.name)} is a session of {quoted(manifest.language, 40)}")
