"""The backend `auto` chooses the first engine that works, says why it did not choose others, and refuses if none
works."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from llm_sandbox_mcp.base.errors import EngineUnavailable
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.engines import host_folder, need, small_profile

pytestmark = pytest.mark.anyio

NOWHERE = {"host": "unix:///nonexistent/engine.sock"}
NO_BUBBLEWRAP = {"embedded": {"bwrap": "no-such-program"}}
OPEN = {"network": {"mode": "open"}}


@pytest.fixture
def folder() -> Iterator[Path]:
    with host_folder() as made:
        yield made


@pytest.mark.parametrize(
    ("expected", "changes"),
    [
        ("embedded", {}),
        ("docker", NO_BUBBLEWRAP),
        ("embedded", OPEN),
        ("docker", {**OPEN, "embedded": {"slirp4netns": "no-such-program"}}),
        ("podman", {**NO_BUBBLEWRAP, "docker": NOWHERE}),
    ],
)
async def test_the_first_engine_that_works_is_taken(folder: Path, expected: str, changes: dict[str, Any]) -> None:
    await need(expected)
    with anyio.fail_after(60):
        async with open_service(small_profile("auto", folder, **changes)) as service:
            done = await execute(service, "import os\nos.path.exists('/opt/handlers/.beat')")
            assert done.result == str(expected != "embedded")
            (chosen,) = [check for check in await service.backend.probe() if check.name == "backend"]
            assert chosen.detail.startswith(f"{expected}, chosen by auto")
            assert ("embedded does not work: " in chosen.detail) == (expected != "embedded")
            assert await service.backend.sweep() == 0


async def test_if_no_engine_works_three_commands_are_named_and_nothing_runs(folder: Path) -> None:
    with anyio.fail_after(60):
        async with open_service(
            small_profile("auto", folder, **{**NO_BUBBLEWRAP, "docker": NOWHERE, "podman": NOWHERE})
        ) as service:
            with pytest.raises(
                EngineUnavailable, match=r"no engine works here: embedded: .*; docker: .*; podman: "
            ) as e:
                await execute(service, "1")
            for command in ("apt-get install bubblewrap", "systemctl start docker", "systemctl start podman.socket"):
                assert command in str(e.value)
            assert [check.state for check in await service.backend.probe()] == ["missing"] * 3
    assert os.listdir(folder / "runtime") == []
