"""What becomes of a session when an installation into it ends."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import anyio
import pytest

from llm_sandbox_mcp.backends.base import Sandbox
from llm_sandbox_mcp.base.errors import InstallFailed
from llm_sandbox_mcp.base.messages import Note, Step
from llm_sandbox_mcp.base.results import Library
from llm_sandbox_mcp.languages.languages import included_languages
from llm_sandbox_mcp.languages.places import Places
from llm_sandbox_mcp.service.installing import Installing
from llm_sandbox_mcp.service.parts import Parts
from llm_sandbox_mcp.sessions.session import Session

pytestmark = pytest.mark.anyio

PLACES = Places(included_languages()["python"])
INSTALLED = (Library("a", "1"),)


class Noted:
    """An installer and a session; what they are told is noted."""

    def __init__(self, *, fails: bool, ruled: bool) -> None:
        self.fails = fails
        self.rules = ruled
        self.dropped = ""
        self.replaced: Mapping[Library, Library] = {}
        self.ran = False
        self.used: tuple[Library, ...] = ()

    async def install(self, *_: object) -> tuple[tuple[Library, ...], Mapping[Library, Library]]:
        await anyio.lowlevel.checkpoint()
        if self.fails:
            raise InstallFailed("no such library", "name another")
        return INSTALLED, self.replaced

    def ruled(self, _: object) -> bool:
        return self.rules

    def drop(self, reason: str) -> None:
        self.dropped = reason

    def use_libraries(self, language: str, installed: tuple[Library, ...]) -> None:
        assert language == "python"
        self.used = installed

    def has_run(self, language: str) -> bool:
        assert language == "python"
        return self.ran

    async def installed(self) -> tuple[tuple[Library, ...], list[Note]]:
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
    assert await noted.installed() == (INSTALLED, [])
    assert (noted.dropped, noted.used) == ("", INSTALLED)


@pytest.mark.parametrize("ran", [True, False])
async def test_one_note_names_all_that_was_replaced_and_how_code_that_has_run_gets_it(ran: bool) -> None:
    noted = Noted(fails=False, ruled=False)
    noted.ran = ran
    noted.replaced = {Library(name, "2"): Library(name, f"1\n{name}") for name in ("b", "a")}
    _, (note,) = await noted.installed()
    named = r"a 2 is now 1\na, b 2 is now 1\nb in this session"
    assert note.cause.startswith(named)
    assert (note.cause == named) != ran
    assert note.step == (Step.RESTART if ran else "")
