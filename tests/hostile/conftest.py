"""The arena of every hostile test case, and the checks that run after each case."""

import os
import re
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from llm_sandbox_mcp.base.errors import SandboxError
from llm_sandbox_mcp.base.results import Execution
from llm_sandbox_mcp.profile.sections import LanguageSection
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.engines import (
    BACKENDS,
    host_folder,
    need,
    need_image,
    need_open_network,
    small_profile,
    without_control_groups,
)
from tests.growth import kept
from tests.hostile import deviations
from tests.hostile.overheard import overheard
from tests.leftovers import System, containers, look, nothing_beyond
from tests.local_index import LocalIndex, local_index, sdist

ANSWER = 10.0
"""Seconds for any answer during or after an attack: one is required, ten allow for a busy machine."""
OPENED = {"kubernetes": 20.0}
"""Seconds for a new session, on backends where the server does not control how fast a sandbox starts."""
GONE = 20.0
"""Seconds until nothing is left behind: two are required, ten times that allows for a busy machine."""
POOL: dict[str, Mapping[str, object]] = {"kubernetes": {"min": 2, "languages": ("python",)}}
"""Pods take seconds to start: the pool starts those for the next cases in the background."""
PROCESSES = {"embedded": 2, "docker": 3, "podman": 3, "kubernetes": 3}
"""Number of processes in a session with one interpreter; in a container the agent is one more."""
_CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")
_CHECKED = pytest.StashKey[bool]()


@dataclass(frozen=True)
class Canaries:
    """Secrets of the host that no output may contain."""

    environment: str
    private: Path
    """Readable only by the server's user."""
    public: Path
    """Readable by everyone on the host, but in a folder that no sandbox sees."""
    content: Mapping[Path, str]


@contextmanager
def planted() -> Iterator[Canaries]:
    """Creates the canaries, and removes them at the end."""
    with tempfile.TemporaryDirectory(prefix=".canary-", dir=Path.home()) as private, host_folder() as public:
        content = {path: f"canary-{secrets.token_hex(12)}" for path in (Path(private, "secret"), public / "secret")}
        for path, text in content.items():
            path.write_text(text)
        first, second = content
        first.chmod(0o600)
        second.chmod(0o644)
        value = f"canary-{secrets.token_hex(12)}"
        os.environ["SANDBOX_TEST_CANARY"] = value
        try:
            yield Canaries(value, first, second, content)
        finally:
            del os.environ["SANDBOX_TEST_CANARY"]


@dataclass
class Arena:
    """A server under attack, and a neighbour who must not notice. Many cases share one arena: it has to survive them
    all."""

    backend: str
    service: Service
    canaries: Canaries
    neighbour: str
    """Id of a session that belongs to someone else."""
    number: int
    """The value of the variable `number` in the neighbour's session."""
    state: Callable[[], System]
    """Returns what the server uses of this machine now."""
    only_neighbour: System
    outputs: list[str]
    """Everything that the server returned or logged."""
    index: LocalIndex | None = None
    """The package index of the case, if it has one."""
    next: str = ""
    """Id of the session that was opened after the last attack, for the next attack; empty once it is used."""
    with_next: System | None = None

    async def attack(self, code: str, *, language: str = "python", **arguments: Any) -> Execution:
        """Runs hostile code while the neighbour works too."""
        need_image(self.backend, language)
        results: list[Execution] = []
        errors: list[SandboxError] = []

        async def run() -> None:
            try:
                results.append(await self.execute(code, language=language, **arguments))
            except SandboxError as error:
                errors.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            with anyio.fail_after(ANSWER):
                await self.neighbour_works()
        for error in errors:
            raise error
        return results[0]

    async def execute(
        self, code: str, *, language: str = "python", session_id: str = "", **arguments: Any
    ) -> Execution:
        """Runs code. If no session is named, Python code runs in the session that was opened for the next attack."""
        if not session_id and language == "python":
            session_id, self.next = self.next, ""
        return await execute(self.service, code, language=language, session_id=session_id, **arguments)

    def counts_processes(self) -> bool:
        """Whether results report that the limit on processes was reached."""
        ungrouped = self.backend == "embedded" and without_control_groups()
        return not ungrouped and self.backend not in deviations.UNCOUNTED

    def check_process_note(self, result: Execution) -> None:
        """Checks that the result reports the limit on processes as reached, on every backend that counts that."""
        reported = any("the limit of 64 processes and threads was reached" in note for note in result.notes)
        assert reported == self.counts_processes(), result

    def is_uid_of_code(self, uid: str) -> bool:
        """Whether code can have this user id: 1000 in a user namespace, a different one in each container and pod."""
        return uid == "1000" if self.backend == "embedded" else int(uid) >= 1000

    async def neighbour_works(self) -> None:
        result = await execute(self.service, "number", session_id=self.neighbour)
        assert (result.status, result.result) == ("ok", str(self.number))

    async def check(self, code: str, session_id: str = "", **arguments: Any) -> str:
        """Runs honest code that must succeed; returns what it printed."""
        result = await self.execute(code, session_id=session_id, **arguments)
        assert result.status == "ok", result
        return result.stdout.text

    async def open_next(self, seconds: float) -> None:
        """Checks that a new session gets the right answer, whatever ran before; the next attack uses this session."""
        with anyio.fail_after(seconds):
            result = await execute(self.service, "6 * 7", session_id=self.next)
        assert (result.status, result.result) == ("ok", "42"), result
        if not self.next:
            self.next = result.session_id
            # With a warm pool other pods start in the background: only their number is compared, and it stays the same.
            if self.with_next is None or not self.service.profile.pool.min:
                await filled(self.service)
                self.with_next = self.state()

    async def nothing_is_left(self) -> None:
        """Closes what the case opened, and checks that nothing of it is left behind."""
        containers()
        for info in self.service.sessions.list():
            if info.id not in (self.neighbour, self.next):
                await self.service.sessions.close(info.id)
        before = self.with_next if self.next else self.only_neighbour
        assert before is not None
        await nothing_beyond(before, self.state, GONE)


@contextmanager
def served(packages: Mapping[str, object]) -> Iterator[LocalIndex | None]:
    """A package index with these packages, or None if there are no packages."""
    if not packages:
        yield None
        return
    with local_index() as index:
        for name, code in packages.items():
            index.add_project(name, sdist(name, str(code)), index)
        yield index


async def filled(service: Service) -> None:
    """Waits until as many sandboxes are warm as the pool keeps, which may be none, and no sandbox is closing."""
    await service.pool_until(lambda now: now.warm >= service.profile.pool.min and not now.closing)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    deviations.mark(item for item in items if Path(__file__).parent in item.path.parents)


@pytest.fixture(scope="package")
def anyio_backend() -> str:
    return "asyncio"


ATTACKED = re.split(r"[\s,]+", os.environ.get("SANDBOX_ATTACK", " ".join(BACKENDS)))
"""The backends on which every case runs."""


@pytest.fixture(scope="package", params=[name for name in BACKENDS if name in ATTACKED])
def backend_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


Tolerated = Callable[[Iterable[str]], None]


@pytest.fixture
def tolerated(request: pytest.FixtureRequest, backend_name: str) -> Tolerated:
    """A check of what a case found and should not have found: it must be exactly what `deviations.py` lists."""
    known = deviations.findings(backend_name, request.function.__name__)

    def check(found: Iterable[str]) -> None:
        strange = set(found)
        assert not strange - known, "; ".join(sorted(strange - known))
        by_version = known if strange and backend_name in deviations.SOME_FOUND else deviations.BY_VERSION
        missing = known - strange - by_version
        assert not missing, f"deviations.py lists findings that were not found; remove them: {sorted(missing)}"

    return check


@pytest.fixture(scope="package")
def limits(request: pytest.FixtureRequest) -> dict[str, Mapping[str, object]]:
    """Sections of the profile that a case overrides, given as its parameter. The key `packages` is not a section: it
    maps names of packages to the code that runs while they are built."""
    return getattr(request, "param", {})


@pytest.fixture(scope="package")
async def attacked(
    anyio_backend: str, backend_name: str, limits: dict[str, Mapping[str, object]]
) -> AsyncIterator[Arena]:
    """Opens a server with a neighbour on it, and checks that nothing is left after it was closed."""
    await need(backend_name)
    sections = {name: values for name, values in limits.items() if name != "packages"}
    with host_folder() as folder, planted() as canaries, served(limits.get("packages", {})) as index:
        state = partial(look, folder / "runtime")
        before = state()
        pool = {"pool": POOL[backend_name]} if backend_name in POOL else {}
        profile = small_profile(backend_name, folder, **{**pool, **sections})
        if backend_name == "embedded" and profile.network.mode == "open":
            need_open_network()
        if index is not None:
            places = {"python": f"{index.url}/simple/", "ruby": f"{index.url}/"}
            languages = {name: LanguageSection(index=place) for name, place in places.items()}
            profile = profile.model_copy(update={"languages": languages})
        async with open_service(profile) as service:
            await service.warm()
            number = secrets.randbelow(10**9)
            session = await execute(service, f"number = {number}")
            assert session.status == "ok", session
            await filled(service)
            neighbour = session.session_id
            with overheard(service) as outputs:
                arena = Arena(backend_name, service, canaries, neighbour, number, state, state(), outputs, index)
                # No attack ran yet: if this fails, all attacks on this backend fail.
                await arena.open_next(60)
                with kept(backend_name):
                    yield arena
        await nothing_beyond(before, state, GONE)


@pytest.fixture(autouse=True)
async def arena(request: pytest.FixtureRequest, attacked: Arena) -> AsyncIterator[Arena]:
    """Gives the arena to the case, and afterwards checks everything that must be true of the server."""
    arena, canaries = attacked, attacked.canaries
    arena.outputs.clear()
    core_pattern = _CORE_PATTERN.read_bytes()
    with anyio.fail_after(100):
        yield arena
        with anyio.fail_after(ANSWER):
            await arena.neighbour_works()
        await arena.nothing_is_left()
        await arena.open_next(OPENED.get(arena.backend, ANSWER))
    assert _CORE_PATTERN.read_bytes() == core_pattern, "core_pattern was changed"
    for path, text in canaries.content.items():
        assert path.read_text() == text, "a file of the host was changed"
    hidden = (canaries.environment, *canaries.content.values())
    assert not any(secret in output for output in arena.outputs for secret in hidden), "a secret of the host came back"
    request.node.stash[_CHECKED] = True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fails a case if the checks of `arena` did not run after it, whatever the reason."""
    report = yield
    if call.when == "call":
        item.stash[_CHECKED] = False
    elif call.when == "teardown" and report.passed and item.stash.get(_CHECKED, True) is False:
        report.outcome, report.longrepr = "failed", "nothing was checked after it: it has no `arena`, or its own"
    return report
