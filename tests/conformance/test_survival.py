"""What becomes of a session, as the table in `docs/pages/kept-sessions.md` says: cell by cell, on every backend.

It takes more than a minute, as each case has servers of its own, some in processes of their own.
"""

import itertools
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from llm_sandbox_mcp import Profile
from llm_sandbox_mcp.testing.asking import execute, session_of
from llm_sandbox_mcp.testing.profiles import changed
from tests.promises import SURVIVAL

from ..containers.engines import until
from .kept import LIMIT, Subject, end_from_outside, put_aside

pytestmark = pytest.mark.anyio

SETTINGS: Mapping[str, Mapping[str, object]] = {
    "`keep = false`": {"keep": False},
    "`keep = true`": {"keep": True},
    "with checkpoints": {"keep": True, "checkpoint": "run"},
}
"""The columns of the table."""

STUBBORN = (
    "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nx = 9\nprint('on', flush=True)\nwhile True: pass"
)
"""Code that has to be killed."""


Happens = Callable[[Subject], Awaitable[None]]


async def it_is_idle(subject: Subject) -> None:
    await put_aside(subject.service, subject.id)


async def it_makes_room(subject: Subject) -> None:
    await execute(subject.service, "1")
    await put_aside(subject.service, subject.id)


async def its_server_is_replaced(subject: Subject) -> None:
    await subject.end()
    await subject.start()


async def its_server_cannot_save_it(subject: Subject) -> None:
    """Its code does not stop in time."""
    await subject.begin(STUBBORN)
    await subject.end()
    await subject.start()


async def its_server_is_killed(subject: Subject) -> None:
    assert subject.host
    await subject.host.end("SIGKILL")
    await subject.end()
    await subject.start()


async def its_sandbox_is_lost(subject: Subject) -> None:
    await end_from_outside(subject.service, subject.id, subject.backend)


async def its_sandbox_is_lost_in_a_run(subject: Subject) -> None:
    await subject.begin("x = 9\nprint('on', flush=True)\nwhile True: pass")
    await end_from_outside(subject.service, subject.id, subject.backend)


def its_code(code: str, **options: Any) -> Happens:
    async def happens(subject: Subject) -> None:
        _, subject.said = await subject.do(code, **options)

    return happens


async def its_processes_go_on(subject: Subject) -> None:
    """Processes use the processor after the deadline of the run that left them."""
    await subject.work("import subprocess; subprocess.Popen(['sh', '-c', 'while :; do :; done'])", timeout=0.5)
    session = await session_of(subject.service, subject.id)
    await until(lambda: not session.has_sandbox, LIMIT)


async def it_is_closed(subject: Subject) -> None:
    await subject.service.sessions.close(subject.id)


async def it_is_reset(subject: Subject) -> None:
    await subject.service.sessions.reset(subject.id)


@dataclass(frozen=True)
class Way:
    """One way in which something happens, and what the next call is told."""

    name: str
    happens: Happens
    lost: str
    """If nothing is left."""
    returned: str = ""
    """If an earlier state is left."""
    kept: str = ""
    """If all is left."""
    tables: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    process: bool = False
    """Whether its server has a process of its own."""
    harmless: tuple[str, ...] = ()
    """The backends where nothing is lost."""


_NOT_OPEN = "session '.*' is not open: "
_FRESH = "^started fresh: since an earlier run {}; variables and files are lost"
_PUT_ASIDE = r"^the session was put aside \S+ ago, and is open again as it was then, "
_RETURNED = r"^{}; the session is as it was \S+ ago, after run \d, .*; what came after that{} is lost"
_STARTED_AGAIN = f"{_NOT_OPEN}the server has started again since, or another one made it"
_LOSS = r"(its sandbox ended|pod \S+ was deleted)"
_PERHAPS_KILLED = _RETURNED.format("its server was killed, or still has it", ", if anything,")


def _ended(
    name: str, reason: str, happens: Happens, harmless: tuple[str, ...] = (), **tables: Mapping[str, object]
) -> Way:
    """A way in which a sandbox ends while its session is live."""
    return Way(name, happens, _FRESH.format(reason), _RETURNED.format(reason, ""), tables=tables, harmless=harmless)


WAYS: Mapping[str, Sequence[Way]] = {
    "the session is idle for too long, or makes room": [
        Way(
            "idle",
            it_is_idle,
            f"{_NOT_OPEN}it was closed, or expired after 1s",
            kept=_PUT_ASIDE,
            tables={"sessions": {"idle_timeout": 1.0}},
        ),
        Way(
            "makes room",
            it_makes_room,
            f"{_NOT_OPEN}it was closed, or expired",
            kept=_PUT_ASIDE,
            tables={"sessions": {"max": 1}},
        ),
    ],
    "the server ends, as when it is replaced": [
        Way("replaced", its_server_is_replaced, _STARTED_AGAIN, _PERHAPS_KILLED, _PUT_ASIDE)
    ],
    "the server is killed, or its machine ends": [
        Way("server killed", its_server_is_killed, _STARTED_AGAIN, _PERHAPS_KILLED, process=True)
    ],
    "the sandbox is lost: its node, its pod, the engine, the connection to it": [
        _ended("sandbox lost", _LOSS, its_sandbox_is_lost),
        _ended("sandbox lost in a run", _LOSS, its_sandbox_is_lost_in_a_run),
    ],
    "the code had to be killed, or went beyond its limits": [
        _ended("killed", "the code was killed", its_code(STUBBORN, timeout=0.5), limits={"grace": 0.2}),
        _ended("memory", "the code was killed", its_code("x = 9; y = b'1' * (1 << 30)")),
        _ended(
            "files",
            "there were more files and folders than allowed",
            its_code("for n in range(300): open(f'f{n}', 'w').close()"),
            harmless=("docker", "kubernetes"),  # a file system refuses them, or nothing counts them
            limits={"files": 200},
        ),
        _ended(
            "time", "processes that it left running used the processor after the run's deadline", its_processes_go_on
        ),
    ],
    "the interpreter ends, as with `os._exit`": [
        Way("exits", its_code("x = 9; import os; os._exit(0)"), "variables are lost, files are kept")
    ],
    "the session is closed or reset": [
        Way("closed", it_is_closed, f"{_NOT_OPEN}it was closed"),
        Way("reset", it_is_reset, "^$"),
    ],
}


@dataclass(frozen=True)
class Promise:
    """What a cell promises for one history of the session."""

    left: str
    """`all`; what the session had after its `last` run, or when it was put aside, `earlier`; `files`, or `nothing`."""
    aside: bool = False
    """Whether it had been put aside after its first run."""
    late: str = ""
    """Why it cannot be saved in time, if so: its code `goes on`, or `is killed`."""
    undo: bool = False
    """Whether the profile undoes kills."""
    removed: bool = False
    """Whether nothing is in the store."""


LOST = Promise("nothing")
LAST_OR_LOST = [Promise("earlier", aside=True), LOST]
CELLS: Mapping[str, Sequence[Promise]] = {
    "lost": [LOST],
    "kept": [Promise("all")],
    "kept; what is not saved within `save_timeout` is as it was put aside last, or lost": [
        Promise("all"),
        Promise("all", aside=True),
        Promise("earlier", aside=True, late="goes on"),
        Promise("earlier", aside=True, late="is killed"),
        Promise("nothing", late="goes on"),
    ],
    "kept, with the same exception for the last run": [
        Promise("all"),
        Promise("last", late="goes on"),
        Promise("last", late="is killed"),
    ],
    "as it was put aside last, or lost": LAST_OR_LOST,
    "as after the last run, or the one before": [Promise("last"), Promise("last", aside=True)],
    "lost; with `undo_kills` as it was put aside last": [
        LOST,
        Promise("nothing", aside=True),
        Promise("earlier", aside=True, undo=True),
        Promise("nothing", undo=True),
    ],
    "lost; with `undo_kills` as before the run": [LOST, Promise("last", undo=True)],
    "variables lost, files kept": [Promise("files"), Promise("files", aside=True)],
    "lost, and removed from the store": [
        Promise("nothing", removed=True),
        Promise("nothing", aside=True, removed=True),
    ],
}
"""What the words of a cell mean."""

_ONLY_IN_ALL = pytest.mark.only_in_all(but={"backend_name": "embedded"})
_STATES = {"all": "{0} {0}", "last": "{0} {0}", "earlier": "1 1", "files": "None {0}", "nothing": "None None"}
"""What the next call finds in the variable and in the file, by what is left; {0} is the last run."""


def promised(row: str) -> Mapping[str, str]:
    """The cells of a row by column; "the same" means the cell to its left."""
    cells: dict[str, str] = {}
    for column, cell in SURVIVAL[row].items():
        cells[column] = [*cells.values()][-1] if cell == "the same" else cell
    return cells


IN_GATE = {("idle", "`keep = true`"), ("replaced", "`keep = true`"), ("sandbox lost", "with checkpoints")}
"""What the ring of engines runs; bubblewrap runs all."""


def cases() -> Iterator[object]:
    """Each way of each row, with each history for which its cell promises something."""
    for row in SURVIVAL:
        for column, cell in promised(row).items():
            promises = [one for one in CELLS.get(cell, ()) if column != "`keep = false`" or not one.aside]
            for way, (number, promise) in itertools.product(WAYS.get(row, ()), enumerate(promises)):
                marks = [] if (way.name, column) in IN_GATE and not number else [_ONLY_IN_ALL]
                if way.process and number:
                    marks = [pytest.mark.only_in_all]
                yield pytest.param(way, column, promise, id=f"{way.name}, {column} {number}", marks=marks)


def test_each_cell_of_the_table_is_checked_here() -> None:
    assert [*WAYS] == [*SURVIVAL]
    assert {*CELLS} == {cell for row in SURVIVAL for cell in promised(row).values()}
    assert all([*cells] == [*SETTINGS] for cells in SURVIVAL.values())


@pytest.mark.parametrize(("way", "column", "promise"), [*cases()])
async def test_of_a_session_is_left_what_the_table_says(
    profile: Profile, backend_name: str, folder: Path, way: Way, column: str, promise: Promise
) -> None:
    sessions = {**SETTINGS[column], **way.tables.get("sessions", {}), "undo_kills": promise.undo}
    tables = {**way.tables, "sessions": {"store": str(folder / "kept"), "save_timeout": 30.0, **sessions}}
    subject = Subject(changed(profile, **tables), backend_name)
    if backend_name in way.harmless:
        promise = replace(promise, left="all")
    async with subject.served():
        if promise.aside:
            await subject.start()
            await subject.work()
            await subject.end()
        if promise.late:
            way = replace(way, happens=its_server_cannot_save_it)
            times = {"goes on": (0.5, 2.0), "is killed": (2.0, 0.2)}[promise.late]
            subject.profile = changed(subject.profile, sessions={"save_timeout": times[0]}, limits={"grace": times[1]})
        await subject.start(process=way.process)
        while subject.runs < 2:
            await subject.work()
        await way.happens(subject)
        found, told = await subject.found()
        expected = _STATES[promise.left].format(subject.last)
        assert found == expected, told
        words = {"all": way.kept, "last": way.returned, "earlier": way.returned}.get(promise.left, way.lost)
        assert re.search(words, told, re.MULTILINE), told
        if promise.left in ("last", "earlier"):
            assert f"after run {expected[0]}, " in told, told
        if promise.removed and not told:
            await subject.service.sessions.close(subject.id)
        if promise.removed:
            assert not [path for path in Path(subject.profile.sessions.store).rglob("*") if path.is_file()]
