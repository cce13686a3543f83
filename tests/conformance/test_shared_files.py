"""Sessions that are opened from one large state share its files, where the backend can do that, and nothing else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp import Profile, Sandboxes
from llm_sandbox_mcp.backends.base import Layer, Sandbox
from llm_sandbox_mcp.base.errors import BadState
from llm_sandbox_mcp.service import shared_states
from llm_sandbox_mcp.testing.asking import session_of
from llm_sandbox_mcp.testing.profiles import MIB, changed
from tests.engines import need, small_profile
from tests.pools import one_warm

pytestmark = pytest.mark.anyio

MAKE = """
import os
os.makedirs("data/deep")
open("data/deep/large", "wb").write(b"x" * 1_000_000)
open("data/private", "w").write("private")
os.chmod("data/private", 0o600)
os.symlink("private", "data/link")
open(os.path.expanduser("~/.config"), "w").write("at home")
values = list(range(1000))
"""
ASK = """
import os, stat
(len(values), os.path.getsize("data/deep/large"), open("data/link").read(), stat.S_IMODE(os.stat("data/private").st_mode),
 open(os.path.expanduser("~/.config")).read(), os.stat("data").st_uid == os.getuid(), os.listdir("/tmp"))
"""
ANSWER = f"(1000, 1000000, 'private', {0o600}, 'at home', True, [])"
CHANGE = """
import shutil
open("data/deep/large", "ab").write(b"y")
open("data/private", "w").write("changed")
os.remove("data/link")
shutil.rmtree("data/deep")
os.mkdir("data/deep")
open("data/deep/other", "wb").write(b"z" * 2_000_000)
values.clear()
os.listdir("data/deep"), open("data/private").read()
"""

LOOK = "import os; os.listdir('data/deep'), open('data/private').read()"


@pytest.fixture
def profile(backend_name: str, folder: Path) -> Profile:
    anyio.run(need, backend_name)
    return small_profile(backend_name, folder)


@pytest.fixture(autouse=True)
def small_states_are_shared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_states, "_LARGE", 1_000_000)


@asynccontextmanager
async def with_state(profile: Profile, **changes: dict[str, object]) -> AsyncIterator[Sandboxes]:
    """A server with a saved session `data`, made by another one."""
    with anyio.fail_after(90):
        async with Sandboxes(profile) as before, before.session() as session:
            made = await session.run(MAKE)
            assert made.status == "ok", made
            assert not (await session.save("data")).missing
        async with Sandboxes(changed(profile, **changes)) as sandboxes:
            yield sandboxes


async def sandbox_of(sandboxes: Sandboxes, session_id: str) -> Sandbox:
    return await (await session_of(sandboxes.service, session_id)).sandbox()


async def another_layer(sandboxes: Sandboxes, before: Layer | None) -> Layer | None:
    """Waits until the files that sessions start from are in another layer; None if that cannot be."""
    if not await is_possible(sandboxes):
        return None
    while [*sandboxes.service._pool.layers.values()] in ([], [before]):  # noqa: ASYNC110 - it has no event
        await anyio.sleep(0.01)
    [layer] = sandboxes.service._pool.layers.values()
    return layer


async def is_possible(sandboxes: Sandboxes) -> bool:
    return not await (await sandboxes.service.backend.chosen()).unshared()


async def test_sessions_opened_from_one_state_have_its_files_and_variables_and_each_its_own_changes(
    profile: Profile,
) -> None:
    async with with_state(profile) as sandboxes:
        async with sandboxes.open("data", count=3) as (first, *others):
            shared = await is_possible(sandboxes)
            for session in (first, *others):
                assert ((await sandbox_of(sandboxes, session.id)).layer is not None) is shared
                assert session.opened is not None
                assert (session.opened.variables, session.opened.missing) == ({"python": 2}, ())
                assert (session.artifacts(), (await session.run(ASK)).result) == ((), ANSWER)
            assert (await first.run(CHANGE)).result == "(['other'], 'changed')"
            for session in others:
                assert (await session.run(ASK)).result == ANSWER
            saved = await first.save("changed")
            assert not saved.missing
        async with sandboxes.open("changed", count=2) as sessions:  # which unpacks what came from a layer
            for session in sessions:
                assert (await session.run(LOOK)).result == "(['other'], 'changed')"
                assert (await session.run("values")).result == "[]"


async def test_sandboxes_that_wait_share_the_files_of_the_state_that_sessions_start_from(profile: Profile) -> None:
    warm = {"min": 1, "languages": ("python",)}
    async with with_state(profile, pool=warm, languages={"python": {"start": "data"}}) as sandboxes:
        await sandboxes.service.warm(["python"])
        shared = await another_layer(sandboxes, None)
        await sandboxes.service.pool_until(one_warm)
        async with sandboxes.session() as session:
            assert (await session.run(ASK)).result == ANSWER
            assert sandboxes.service.pool().hits == 1
            assert (await sandbox_of(sandboxes, session.id)).layer is shared
            assert (await session.run(CHANGE)).result == "(['other'], 'changed')"
            await session.save("data")
        async with sandboxes.session() as session:  # whether or not the files of the new one are shared already
            assert (await session.run(LOOK)).result == "(['other'], 'changed')"
        newer = await another_layer(sandboxes, shared)
        await sandboxes.service.pool_until(one_warm)
        async with sandboxes.session() as session:
            assert (await session.run(LOOK)).result == "(['other'], 'changed')"
            assert (await sandbox_of(sandboxes, session.id)).layer is newer


async def test_a_narrower_session_gets_a_copy_and_one_for_which_the_state_is_too_large_is_refused(
    profile: Profile,
) -> None:
    async with with_state(profile, languages={"python": {"start": "data"}}) as sandboxes:
        await sandboxes.service.warm(["python"])
        async with sandboxes.session(limits={"disk": 8 * MIB}) as session:
            assert (await session.run(ASK)).result == ANSWER
            assert (await sandbox_of(sandboxes, session.id)).layer is None
        async with sandboxes.session(limits={"disk": MIB // 2}) as session:
            with pytest.raises(BadState, match="do not fit"):
                await session.run("1")
