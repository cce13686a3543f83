"""What becomes of a session when an installation into it ends."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import anyio
import pytest

from llm_sandbox_mcp.backends.base import Sandbox
from llm_sandbox_mcp.base.errors import InstallFailed
from llm_sandbox_mcp.base.messages import Step
from llm_sandbox_mcp.base.results import Installation, Library
from llm_sandbox_mcp.languages.languages import included_languages
from llm_sandbox_mcp.languages.places import Places
from llm_sandbox_mcp.libraries.installing import Change
from llm_sandbox_mcp.service.installing import Installing
from llm_sandbox_mcp.service.parts import Parts
from llm_sandbox_mcp.sessions.session import Session

pytestmark = pytest.mark.anyio

PLACES = Places(included_languages()["python"])
INSTALLED = (Library("a", "1"),)


class Noted:
    """An installer and a session; what they are told is noted."""

    id = "s"

    def __init__(self, *, fails: bool, ruled: bool) -> None:
        self.fails = fails
        self.rules = ruled
        self.dropped = ""
        self.replaced: Mapping[Library, Library] = {}
        self.ran = False
        self.used: tuple[Library, ...] = ()
        self.looked_for: frozenset[str] = frozenset()

    async def install(self, *_: object) -> Change:
        await anyio.lowlevel.checkpoint()
        if self.fails:
            raise InstallFailed("no such library", "name another")
        return Change(INSTALLED, (), self.replaced)

    def ruled(self, _: object) -> bool:
        return self.rules

    def drop(self, reason: str) -> None:
        self.dropped = reason

    def missed(self, language: str) -> frozenset[str]:
        assert language == "python"
        return self.looked_for

    async def use_libraries(self, language: str, installed: tuple[Library, ...]) -> None:
        assert language == "python"
        self.used = installed

    def has_run(self, language: str) -> bool:
        assert language == "python"
        return self.ran

    async def installed(self) -> Installation:
        parts = cast(Parts, SimpleNamespace(installer=self, audit=None))
        return await Installing(parts).into(cast(Session, self), cast(Sandbox, None), PLACES, ("a",), None)


@pytest.mark.parametrize("ruled", [True, False])
async def test_after_a_failure_only_a_session_that_may_have_what_is_denied_is_dropped(ruled: bool) -> None:
    noted = Noted(fails=True, ruled=ruled)
    with pytest.raises(InstallFailed):
        await noted.installed()
    assert ("libraries that the profile denies" in noted.dropped) == ruled
    assert noted.used == ()


@pytest.mark.parametrize("ruled", [True, False])
async def test_what_was_installed_is_used_and_the_session_stays(ruled: bool) -> None:
    noted = Noted(fails=False, ruled=ruled)
    assert await noted.installed() == Installation("s", INSTALLED, ())
    assert (noted.dropped, noted.used) == ("", INSTALLED)


@pytest.mark.parametrize("ran", [True, False])
async def test_one_note_names_all_that_was_replaced_and_how_code_that_has_run_gets_it(ran: bool) -> None:
    noted = Noted(fails=False, ruled=False)
    noted.ran = ran
    noted.replaced = {Library(name, "2"): Library(name, f"1\n{name}") for name in ("b", "a")}
    (note,) = (await noted.installed()).notes
    named = r"a 2 is now 1\na, b 2 is now 1\nb in this session"
    assert note.cause.startswith(named)
    assert (note.cause == named) != ran
    assert note.step == (Step.RESTART if ran else "")


@pytest.mark.parametrize("ran", [True, False])
async def test_a_note_says_if_code_that_has_run_goes_on_without_what_its_imports_looked_for(ran: bool) -> None:
    noted = Noted(fails=False, ruled=False)
    noted.ran = ran
    noted.looked_for = frozenset({"a", "other"})
    notes = (await noted.installed()).notes
    assert [(note.code, note.step) for note in notes] == ([("libraries_unseen", Step.RESTART)] if ran else [])
    assert not ran or " it imported before a was there" in notes[0].cause
