"""The arena of every hostile case, and what must hold after each of them."""

import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from llm_sandbox_mcp.results import Execution
from llm_sandbox_mcp.service import Service, open_service
from tests.engines import BACKENDS, host_folder, need, small_profile
from tests.leftovers import look, nothing_beyond

ANSWER = 3.0
"""Seconds for any answer while or after an attack goes on: one is required, three allow for a busy machine."""
GONE = 6.0
"""Seconds until nothing is left: two are required."""
_CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")


@dataclass(frozen=True)
class Canaries:
    """Secrets of the host that no output may contain."""

    environment: str
    private: Path
    """Readable for the server's user only."""
    public: Path
    """Readable for everyone on the host, in a place that no sandbox sees."""
    content: Mapping[Path, str]


@contextmanager
def planted() -> Iterator[Canaries]:
    """Plants canaries."""
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
    """A server under attack, and a neighbour who must not notice."""

    service: Service
    canaries: Canaries
    neighbour: str
    """Session of someone else."""
    number: int
    """What the neighbour's session holds."""
    outputs: list[str] = field(default_factory=list)
    """Everything that came back."""

    async def attack(self, code: str, *, language: str = "python", **arguments: Any) -> Execution:
        """Runs hostile code while the neighbour works too."""
        results: list[Execution] = []

        async def run() -> None:
            results.append(await self.service.execute(code, language=language, **arguments))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            with anyio.fail_after(ANSWER):
                await self.neighbour_works()
        await self.keep(results[0])
        return results[0]

    async def keep(self, result: Execution) -> None:
        """Remembers an output, its artifacts included."""
        self.outputs.append(repr(result))
        for artifact in result.artifacts:
            _, content = await self.service.read_artifact(result.session_id, artifact.name)
            self.outputs.append(content.decode(errors="replace"))

    async def neighbour_works(self) -> None:
        result = await self.service.execute("number", session_id=self.neighbour)
        assert (result.status, result.result) == ("ok", str(self.number))

    async def check(self, code: str, session_id: str = "", **arguments: Any) -> str:
        """Runs honest code that must succeed; gives what it printed."""
        result = await self.service.execute(code, session_id=session_id, **arguments)
        await self.keep(result)
        assert result.status == "ok", result
        return result.stdout.text


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=BACKENDS)
def backend_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def limits() -> dict[str, Mapping[str, object]]:
    """Sections of the profile that a test module overrides."""
    return {}


@pytest.fixture(autouse=True)
async def arena(anyio_backend: str, backend_name: str, limits: dict[str, Mapping[str, object]]) -> AsyncIterator[Arena]:
    """Opens a server with a neighbour on it; after the case, holds the server to everything that must hold."""
    await need(backend_name)
    core_pattern = _CORE_PATTERN.read_bytes()
    with host_folder() as folder, planted() as canaries:
        profile = small_profile(backend_name, folder, **limits)
        state = partial(look, folder / "runtime")
        before = state()
        with anyio.fail_after(60):
            async with open_service(profile) as service:
                number = secrets.randbelow(10**9)
                session = await service.execute(f"number = {number}")
                assert session.status == "ok", session
                arena = Arena(service, canaries, session.session_id, number)
                only_neighbour = state()
                yield arena
                with anyio.fail_after(ANSWER):
                    assert (await service.execute("6 * 7", keep_session=False)).result == "42"
                with anyio.fail_after(ANSWER):
                    await arena.neighbour_works()
                for info in service.list_sessions():
                    if info.id != arena.neighbour:
                        await service.close_session(info.id)
                await nothing_beyond(only_neighbour, state, GONE)
        await nothing_beyond(before, state, GONE)
        assert _CORE_PATTERN.read_bytes() == core_pattern
        for path, text in canaries.content.items():
            assert path.read_text() == text
            assert not any(text in output for output in arena.outputs)
        assert not any(canaries.environment in output for output in arena.outputs)
