"""Folders of the operator's in sessions: what is told of them when code was refused, and when a session ends.

What is in their copies is in `tests/unit/service/test_views.py`; here, all of them are mounted.
"""

from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.base.messages import Note
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import open_session, start
from tests.memory.backend import MemoryBackend, MemorySandbox

from .conftest import run

pytestmark = pytest.mark.anyio


@pytest.fixture
def end() -> str:
    """How the folder is open."""
    return ":rw"


@pytest.fixture
def changes(tmp_path: Path, end: str) -> dict[str, Mapping[str, object]]:
    (tmp_path / "notes").mkdir()
    # Code has longer to react to an interrupt than the end of a session waits.
    return {"files": {"folders": (f"{tmp_path}/notes{end}",)}, "limits": {"grace": 20.0}}


@pytest.fixture
async def session(service: Service, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(MemorySandbox, "mounted", service.profile.views)
    return open_session(service, "script")


def codes(notes: tuple[Note, ...]) -> list[str]:
    return [note.code for note in notes if isinstance(note, Note)]


async def test_who_may_not_read_a_file_is_told_who_may(service: Service, session: str) -> None:
    done = await run(service, "complain /data/notes/a: Permission denied\nfail", session_id=session)
    assert "private_file" in codes(done.notes)
    for code in ("complain /data/other/a: Permission denied\nfail", "complain /data/notes/a: Permission denied"):
        assert codes((await run(service, code, session_id=session)).notes) == []


@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize("ends", ["close", "reset"])
async def test_the_end_of_an_idle_session_loses_nothing(
    service: Service, session: str, engine: MemoryBackend, used: bool, ends: str
) -> None:
    if used:
        await run(service, "print x", session_id=session)
    assert await getattr(service.sessions, ends)(session) == []
    assert engine.made == used


@pytest.mark.parametrize(("end", "told"), [(":rw", ["results_lost"]), (":ro", [])])
@pytest.mark.parametrize("ends", ["close", "reset"])
async def test_the_end_of_a_session_waits_ten_seconds_for_what_can_be_saved(
    service: Service, session: str, ends: str, told: list[str]
) -> None:
    started = await start(service, "deaf\nsleep 1000", language="script", session_id=session)
    await anyio.sleep(1)  # on a clock that jumps
    assert started.state == "running"
    begun = anyio.current_time()
    assert codes(tuple(await getattr(service.sessions, ends)(session))) == told
    # A reset waits until the code is gone, a close only for what is saved.
    expected = 20 if ends == "reset" else 10 if told else 0
    assert anyio.current_time() - begun == pytest.approx(expected, abs=0.5)
