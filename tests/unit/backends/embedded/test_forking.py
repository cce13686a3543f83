"""When sandboxes are forks, and when not any more; without any process."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest

from llm_sandbox_mcp.backends.base import Zygote
from llm_sandbox_mcp.backends.embedded.forking import BARE, Zygotes
from llm_sandbox_mcp.backends.embedded.launching import Launched
from llm_sandbox_mcp.base.errors import StartFailed, Unavailable

pytestmark = pytest.mark.anyio

LOADED = Zygote(("python3",), (), ("module",))


class Launcher:
    """Starts zygotes that are ready at once, unless there is a reason why they are not."""

    def __init__(self) -> None:
        self.reason = ""
        self.live: dict[str, Launched] = {}
        self.started = 0

    async def zygote(self, name: str, argv: list[str], modules: Sequence[str]) -> Launched:
        self.started += 1
        launched = self.live[name] = Launched(reason=self.reason)
        launched.heard.set()
        return launched

    async def kill(self, name: str) -> None:
        self.live.pop(name).end()

    async def ended(self, name: str) -> None:
        if name in self.live:
            await self.live[name].exited.wait()


@asynccontextmanager
async def opened(launcher: Launcher, *errors: Exception) -> AsyncIterator[Zygotes]:
    """The zygotes of a launcher; the first trials fail with these errors."""
    left = [*errors]

    async def trial(name: str) -> None:
        if left:
            raise left.pop(0)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            yield Zygotes(launcher, lambda zygote: [], trial, tasks)  # type: ignore[arg-type]
            tasks.cancel_scope.cancel()


async def test_the_first_sandbox_is_no_fork_and_starts_none(launcher: Launcher) -> None:
    async with opened(launcher) as zygotes:
        assert zygotes.parents(None) == ()
        await anyio.wait_all_tasks_blocked()
        assert launcher.started == 0
        assert zygotes.parents(None) == ()
        assert await zygotes.obstacle() == ""
        assert [one for one, _ in zygotes.parents(None)] == [BARE]


@pytest.fixture
def launcher() -> Launcher:
    return Launcher()


async def test_a_zygote_with_modules_is_the_first_choice_once_it_is_ready(launcher: Launcher) -> None:
    async with opened(launcher) as zygotes:
        await zygotes.obstacle()
        assert [one for one, _ in zygotes.parents(LOADED)] == [BARE]
        assert await zygotes.settled(LOADED)
        assert [one for one, _ in zygotes.parents(LOADED)] == [LOADED, BARE]


@pytest.mark.parametrize("error", [StartFailed("no"), Unavailable("no"), OSError("no")])
async def test_a_trial_that_fails_once_is_repeated(launcher: Launcher, error: Exception) -> None:
    async with opened(launcher, error) as zygotes:
        assert await zygotes.obstacle() == ""


@pytest.mark.parametrize("error", [StartFailed("no"), Unavailable("no"), OSError("no")])
async def test_without_a_successful_trial_no_sandbox_is_a_fork(launcher: Launcher, error: Exception) -> None:
    async with opened(launcher, error, error, error) as zygotes:
        assert await zygotes.obstacle() == "no"
        assert zygotes.parents(LOADED) == ()


async def test_a_zygote_that_ends_is_replaced_however_many_forks_ended_with_it(launcher: Launcher) -> None:
    async with opened(launcher) as zygotes:
        await zygotes.obstacle()
        [(_, name)] = zygotes.parents(None)
        for _ in range(50):
            zygotes.failed(BARE, "it has ended")
        await launcher.kill(name)
        await anyio.wait_all_tasks_blocked()
        assert zygotes.parents(None) == []
        assert await zygotes.settled(BARE)
        assert await zygotes.obstacle() == ""


async def test_a_zygote_whose_forks_fail_again_and_again_is_given_up_and_that_is_told(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llm_sandbox_mcp.backends.embedded.forking._TOGETHER", 0.0)
    async with opened(launcher) as zygotes:
        await zygotes.obstacle()
        for _ in range(2):
            zygotes.failed(BARE, "no room")
        zygotes.worked(BARE)
        for _ in range(2):
            zygotes.failed(BARE, "no room")
        assert [one for one, _ in zygotes.parents(None)] == [BARE]
        zygotes.failed(BARE, "no room")
        assert zygotes.parents(None) == []
        assert await zygotes.obstacle() == "no room"


async def test_a_zygote_that_cannot_be_used_is_tried_three_times(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llm_sandbox_mcp.backends.embedded.forking._TOGETHER", 0.0)
    launcher.reason = "it has started threads"
    async with opened(launcher) as zygotes:
        assert not await zygotes.settled(LOADED)
        assert launcher.started == 3
        assert zygotes.reasons[LOADED] == "it has started threads"
