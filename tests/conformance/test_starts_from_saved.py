"""Sessions that start from a saved one, and a saved session that is opened many times at once, on every backend."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp import Profile, Sandboxes
from llm_sandbox_mcp.base.errors import BadState, CapacityReached, InvalidArgument, SandboxError, UnknownState
from llm_sandbox_mcp.base.principal import TOKEN
from llm_sandbox_mcp.base.results import PoolStatistics
from llm_sandbox_mcp.pool import pool
from llm_sandbox_mcp.profile.sections import LanguageSection
from llm_sandbox_mcp.service import starts
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.testing.profiles import MIB, changed
from tests.engines import need, small_profile
from tests.local_index import LocalIndex, local_index, wheel
from tests.pools import one_warm

from . import kept
from .kept import put_aside, serving
from .test_saved_sessions import INSTALLED

pytestmark = pytest.mark.anyio

WARM = {"min": 1, "languages": ("python",)}
LOOK = "import os\nx, os.path.exists('mine') and open('mine').read()"


@pytest.fixture
def changes() -> Mapping[str, Mapping[str, object]]:
    return {"limits": {"disk": 16 * MIB, "memory": 192 * MIB}}


@pytest.fixture
def index() -> Iterator[LocalIndex]:
    with local_index() as served:
        served.add_project("phones", wheel("phones"), served)
        yield served


@pytest.fixture
def plain(backend_name: str, folder: Path, index: LocalIndex, changes: Mapping[str, Mapping[str, object]]) -> Profile:
    """A profile by which sessions start empty, under which the saved sessions are made."""
    anyio.run(need, backend_name)
    made = small_profile(backend_name, folder, **changes)
    return made.model_copy(update={"languages": {"python": LanguageSection(index=f"{index.url}/simple/")}})


@pytest.fixture
def profile(plain: Profile) -> Profile:
    """The same, by which sessions start from `geo`."""
    return changed(plain, languages={"python": {"start": "geo"}})


@asynccontextmanager
async def sandboxes_of(profile: Profile, **changes: Mapping[str, object]) -> AsyncIterator[Sandboxes]:
    with anyio.fail_after(90):
        async with Sandboxes(changed(profile, **changes)) as opened:
            yield opened


async def saved(profile: Profile, code: str = "x = 41", name: str = "geo", language: str = "python") -> None:
    """Saves what code leaves as a session of that name, in another server."""
    async with sandboxes_of(profile) as sandboxes, sandboxes.session(language) as session:
        ran = await session.run(code)
        assert ran.status == "ok", ran
        await session.save(name)


async def warmed(sandboxes: Sandboxes) -> None:
    """Waits until a sandbox is warm, and nothing else is going on."""
    await sandboxes.service.warm(["python"])
    await until(sandboxes, one_warm)


async def until(sandboxes: Sandboxes, condition: Callable[[PoolStatistics], bool]) -> None:
    await sandboxes.service.pool_until(condition)


async def nothing_is_left(sandboxes: Sandboxes) -> None:
    """Waits until no sandbox is in use; there is no session."""
    assert sandboxes.service.sessions.list() == ()
    await until(sandboxes, lambda now: now.leased == now.closing == now.waiting == 0)


MAKE = """
import os, phones
x = [41]
def f():
    return phones.ANSWER + x[0]
open("mine", "w").write("content")
open(os.path.expanduser("~/.config"), "w").write("at home")
"""
ASK = """
import os, phones
print(f(), open("mine").read(), open(os.path.expanduser("~/.config")).read(), sorted(os.listdir(".")))
x[0] += 1
open("mine", "w").write("changed")
open("other", "w").close()
"""


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
async def test_a_session_starts_with_the_variables_files_and_libraries_of_the_saved_one_and_nothing_else_of_it(
    plain: Profile, profile: Profile, *, warm: bool
) -> None:
    async with sandboxes_of(plain) as others, others.session() as first:
        assert [one.name for one in await first.install("phones")] == ["phones"]
        assert (await first.run(MAKE)).status == "ok"
        await first.save("geo")
    async with sandboxes_of(profile, pool=WARM if warm else {}) as sandboxes:
        if warm:
            await warmed(sandboxes)
        async with sandboxes.session() as session:
            assert session.id != first.id
            ran = await session.run(ASK)
            assert (ran.stdout.text, ran.notes) == ("83 content at home ['mine']\n", ())
            assert sandboxes.service.pool().hits == warm
            assert [one.name for one in ran.artifacts] == ["mine", "other"]
            [info] = sandboxes.service.sessions.list()
            assert (info.id, info.runs) == (session.id, 1)
            assert 'File "<cell 3>"' in (await session.run("1/0")).stderr.text
            async with sandboxes.session() as other:
                assert (await other.run(LOOK)).result == "([41], 'content')"
                assert other.artifacts() == ()
            assert (await session.run(LOOK)).result == "([42], 'changed')"
            await session.reset()
            again = await session.run(LOOK)
            assert (again.result, again.notes) == ("([41], 'content')", ())
        by_itself = await sandboxes.run(ASK)
        assert (by_itself.stdout.text, by_itself.notes) == ("83 content at home ['mine']\n", ())


async def test_what_comes_before_the_first_run_finds_the_files_of_the_saved_session(
    plain: Profile, profile: Profile
) -> None:
    await saved(plain, "open('mine', 'w').write('content'); x = 41")
    async with sandboxes_of(profile) as sandboxes, sandboxes.session() as session:
        assert await session.read("mine") == b"content"
        await session.write("mine", "written")
        assert (await session.run(LOOK)).result == "(41, 'written')"
        await session.restart()
        assert await session.read("mine") == b"written"
        assert "NameError" in (await session.run("x")).stderr.text


async def test_what_a_session_has_started_with_is_what_it_has_without_a_run_of_its_own(
    plain: Profile, profile: Profile
) -> None:
    await saved(plain, "open('mine', 'w').write('content'); x = 41")
    async with sandboxes_of(profile) as sandboxes, sandboxes.session() as session:
        await session.write("mine", "written")
        await session.save("other")
        async with sandboxes.open("other") as other, session.branch() as branch:
            assert (await other.run(LOOK)).result == (await branch.run(LOOK)).result == "(41, 'written')"
        await session.refresh()
        assert "NameError" in (await session.run("x")).stderr.text


async def test_sandboxes_stay_warm_if_the_saved_session_has_a_library_and_never_ran_anything(
    plain: Profile, profile: Profile
) -> None:
    async with sandboxes_of(plain) as others, others.session() as first:
        await first.install("phones")
        await first.save("geo")
    preloading = changed(profile, languages={"python": {"preload": ("json",)}}, pool={**WARM, "health_interval": 0.05})
    async with sandboxes_of(preloading) as sandboxes:
        await warmed(sandboxes)
        [owned] = sandboxes.service._pool._members.values()
        since = owned.member.checked_at
        await until(sandboxes, lambda now: now.failed > 0 or owned.member.checked_at > since)
        assert sandboxes.service.pool().last_error == ""
        assert (await sandboxes.run("import phones; phones.ANSWER")).result == "42"
        assert (sandboxes.service.pool().hits, sandboxes.service.pool().failed) == (1, 0)


async def test_what_is_missing_of_the_saved_session_is_told_in_the_first_run_of_each(
    plain: Profile, profile: Profile
) -> None:
    spoiled = "class Odd:\n    def __reduce__(self):\n        return eval, ('1/0',)\n"
    await saved(plain, f"{spoiled}x = 41\nodd = Odd()")
    async with sandboxes_of(profile) as sandboxes:
        for _ in range(2):
            async with sandboxes.session() as session:
                first, second = await session.run("x"), await session.run("x")
                assert (first.result, second.result, second.notes) == ("41", "41", ())
                assert any(note.startswith("not kept: ") and "odd" in note for note in first.notes), first.notes


async def test_sessions_that_are_opened_or_branched_have_nothing_of_the_one_that_others_start_from(
    plain: Profile, profile: Profile
) -> None:
    await saved(plain, "x = 41; y = 1; open('of geo', 'w').close()")
    await saved(plain, "x = 2; open('mine', 'w').write('other')", "other")
    look = f"{LOOK}, 'y' in globals(), os.path.exists('of geo')"
    async with sandboxes_of(profile, pool=WARM) as sandboxes:
        await warmed(sandboxes)
        async with sandboxes.open("other") as session:
            assert (await session.run(look)).result == "(2, 'other', False, False)"
            async with session.branch() as branch:
                assert (await branch.run(look)).result == "(2, 'other', False, False)"
            async with sandboxes.open("other", count=2) as several:
                for one in several:
                    assert (await one.run(look)).result == "(2, 'other', False, False)"
            await session.reset()  # it starts afresh, as any other
            assert (await session.run(look)).result == "(41, False, True, True)"
        async with sandboxes.session() as session:
            await session.run("del y; x = 3; os = __import__('os'); os.remove('of geo')")
            async with session.branch() as branch:
                assert (await branch.run(look)).result == "(3, False, False, False)"


async def test_a_session_that_was_put_aside_goes_on_as_it_was_and_starts_from_the_saved_one_after_a_reset(
    plain: Profile, profile: Profile
) -> None:
    await saved(plain, "x = 41; y = 1; open('of geo', 'w').close()")
    look = f"{LOOK}, 'y' in globals(), os.path.exists('of geo')"
    change = "import os; del y; x = 2; os.remove('of geo'); open('mine', 'w').write('m') and None"
    async with serving(changed(profile, pool=WARM), keep=True, idle_timeout=0.5) as service:
        await service.warm(["python"])
        first = await execute(service, change)
        assert first.status == "ok", first
        await put_aside(service, first.session_id)
        await service.pool_until(one_warm)
        again = await execute(service, look, session_id=first.session_id)
        assert again.result == "(2, 'm', False, False)", again
        await service.sessions.reset(first.session_id)
        fresh = await execute(service, look, session_id=first.session_id)
        assert fresh.result == "(41, False, True, True)", fresh


async def test_a_session_that_started_from_a_saved_one_is_after_a_loss_what_it_was_after_its_last_run(
    plain: Profile, profile: Profile
) -> None:
    await saved(plain, "x = 41; y = 1; open('of geo', 'w').close()")
    async with serving(changed(profile, pool=WARM), keep=True, checkpoint="run") as service:
        await service.warm(["python"])
        await service.pool_until(one_warm)
        first = await execute(service, "import os; x += 1; os.remove('of geo'); open('mine', 'w').write('m') and None")
        assert first.status == "ok", first
        await kept.saved(profile, first.session_id, 1)
        await kept.lose_sandbox(service, first.session_id)
        again = await execute(service, f"{LOOK}, y, os.path.exists('of geo')", session_id=first.session_id)
        assert again.result == "(42, 'm', 1, False)", again
        assert [note.code for note in again.notes] == ["opened_again"]


def _missing(folder: Path) -> None:
    for file in (folder / "saved").rglob("*.state"):
        file.unlink()


def _damaged(folder: Path) -> None:
    [file] = (folder / "saved").rglob("*.state")
    whole = file.read_bytes()
    file.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])


FAILURES: Mapping[str, tuple[Callable[[Path], None] | None, str]] = {
    "missing": (_missing, "no session is saved as 'geo'"),
    "damaged": (_damaged, "'geo' is damaged: "),
    "too large": (None, r"do not fit: a folder can have 4MiB \(limits.disk in the profile\)"),
    "another language": (None, "'geo' is a session of 'bash'"),
}


@pytest.mark.parametrize("how", FAILURES)
async def test_no_session_starts_from_what_cannot_be_opened_until_it_can(
    plain: Profile, profile: Profile, folder: Path, how: str
) -> None:
    spoil, cause = FAILURES[how]
    large = "import os; open('large', 'wb').write(os.urandom(9 << 20)) and None"
    if how == "another language":
        await saved(plain, "x=1", language="bash")
    else:
        await saved(plain, large if how == "too large" else "x = 1; 'large enough' * 100")
    if spoil is not None:
        spoil(folder)
    limits = {"disk": 4 * MIB} if how == "too large" else {}
    async with sandboxes_of(profile, limits=limits) as sandboxes:
        step = "; the operator can save one as .geo. with a profile without languages.python.start, or name another .*$"
        match = f"^sessions of python start from a saved one, and that cannot be opened: .*{cause}.*{step}"
        with pytest.raises(BadState, match=match):
            await sandboxes.run("1")
        await nothing_is_left(sandboxes)
        async with sandboxes.session() as session:
            for _ in range(2):
                with pytest.raises(BadState, match=match):
                    await session.run("1")
            await saved(plain)
            ran = await session.run("x")
            assert (ran.result, ran.notes) == ("41", ())
        await nothing_is_left(sandboxes)


async def test_the_next_session_starts_from_what_was_saved_last_under_the_name(
    plain: Profile, profile: Profile
) -> None:
    await saved(plain)
    async with sandboxes_of(profile, pool=WARM) as sandboxes:
        await warmed(sandboxes)
        async with sandboxes.session() as session:
            assert (await session.run("x")).result == "41"
            await until(sandboxes, lambda now: now.warm == 1)
            await session.run("x = 42")
            await session.save("other")
            await session.save("geo")
            assert (await sandboxes.run("x")).result == "42"
            assert (await session.run("x")).result == "42"
            await until(sandboxes, lambda now: (now.warm, now.closing) == (1, 0))
            before = sandboxes.service.pool().hits
            assert (await sandboxes.run("x")).result == "42"
            assert sandboxes.service.pool().hits == before + 1
        await sandboxes.delete("geo")
        with pytest.raises(BadState, match="no session is saved as 'geo'"):
            await sandboxes.run("x")


async def test_what_other_callers_save_under_the_name_is_not_what_sessions_start_from(
    plain: Profile, profile: Profile
) -> None:
    await saved(plain)
    async with sandboxes_of(profile, pool=WARM) as sandboxes:
        await warmed(sandboxes)
        async with sandboxes.session() as session:
            await session.run("x = 666")
            await until(sandboxes, lambda now: now.warm == 1)
            closed = sandboxes.service.pool().closed
            await sandboxes.service.states.save(TOKEN, session.id, "geo")
            assert (sandboxes.service.pool().closed, (await sandboxes.run("x")).result) == (closed, "41")


async def test_what_another_server_saves_under_the_name_replaces_what_waits_here(
    plain: Profile, profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starts, "_LOOK", 0.05)
    await saved(plain)
    async with sandboxes_of(profile, pool=WARM) as sandboxes:
        await warmed(sandboxes)
        await saved(plain, "x = 42")
        await until(sandboxes, lambda now: (now.opened, now.warm) == (2, 1))
        assert (await sandboxes.run("x")).result == "42"
        assert sandboxes.service.pool().hits == 1


async def test_what_waits_is_replaced_although_a_session_has_opened_the_new_one_already(
    plain: Profile, profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starts, "_LOOK", 1000.0)
    await saved(plain)
    async with sandboxes_of(profile, pool=WARM) as sandboxes:
        await warmed(sandboxes)
        await saved(plain, "x = 42")
        async with sandboxes.session(limits={"timeout": 20}) as session:  # no sandbox with these waits
            assert (await session.run("x")).result == "42"
        await sandboxes.service.starts.look()
        assert (await sandboxes.run("x")).result == "42"


async def test_what_could_not_be_opened_is_tried_again_as_soon_as_another_one_is_seen(
    plain: Profile, profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_FIRST_BACKOFF", 1000.0)
    async with sandboxes_of(profile, pool=WARM) as sandboxes:
        await sandboxes.service.warm(["python"])
        await until(sandboxes, lambda now: now.failed == 1)
        await saved(plain)
        await sandboxes.service.starts.look()
        await until(sandboxes, one_warm)
        assert (await sandboxes.run("x")).result == "41"


async def test_a_saved_session_is_opened_several_times_at_once_and_each_goes_on_by_itself(plain: Profile) -> None:
    await saved(plain, "x = [41]; open('mine', 'w').write('content')")
    told = list[str]()

    async def tell(text: str) -> None:
        told.append(text)

    async with sandboxes_of(plain) as sandboxes:
        async with sandboxes.open("geo", count=5, on_progress=tell) as sessions:
            assert len({session.id for session in sessions}) == len(sandboxes.service.sessions.list()) == 5
            for number, session in enumerate(sessions):
                assert session.opened is not None
                assert (session.opened.session_id, session.language) == (session.id, "python")
                assert session.artifacts() == ()
                ran = await session.run(f"x.append({number}); open('mine', 'a').write('{number}') and None")
                assert (ran.status, ran.notes) == ("ok", ())
            for number, session in enumerate(sessions):
                assert (await session.run(LOOK)).result == f"([41, {number}], 'content{number}')"
                assert 'File "<cell 4>"' in (await session.run("1/0")).stderr.text
        assert told == [f"opened {number} of 5" for number in range(1, 6)]
        await nothing_is_left(sandboxes)
        with pytest.raises(ZeroDivisionError):
            async with sandboxes.open("geo", count=2):
                raise ZeroDivisionError
        await nothing_is_left(sandboxes)


async def test_more_sessions_than_there_can_be_are_not_opened_at_all(plain: Profile) -> None:
    await saved(plain)
    async with sandboxes_of(plain, sessions={"max": 3}) as sandboxes:
        for count in (4, 1000):
            with pytest.raises(
                CapacityReached, match=rf"{count} sessions .*: 3 can be open at once, and 0 .*sessions\.max"
            ):
                async with sandboxes.open("geo", count=count):
                    pass
            await nothing_is_left(sandboxes)
        assert sandboxes.service.pool().opened == 0
        async with sandboxes.open("geo", count=3) as sessions:
            assert [(await session.run("x")).result for session in sessions] == ["41"] * 3


@pytest.mark.parametrize("count", [0, -1])
async def test_a_number_of_sessions_below_one_is_refused(plain: Profile, count: int) -> None:
    async with sandboxes_of(plain) as sandboxes:
        with pytest.raises(InvalidArgument, match=f"count must be at least 1, not {count}"):
            async with sandboxes.open("geo", count=count):
                pass


async def test_if_one_of_several_cannot_be_opened_none_is_left(plain: Profile, folder: Path) -> None:
    await saved(plain, "x = 1; 'large enough' * 100")

    async def refused(sandboxes: Sandboxes, count: int, error: type[SandboxError], match: str) -> None:
        with pytest.raises(error, match=match):
            async with sandboxes.open("geo", count=count):
                pass
        await nothing_is_left(sandboxes)

    async with sandboxes_of(plain, pool={"max": 3, "exhaustion": "fail_fast"}) as sandboxes:
        await refused(sandboxes, 5, CapacityReached, r"5 sessions .* 3 can be open at once, .*pool\.max")
        async with sandboxes.session() as session:
            assert (await session.run("1")).result == "1"
        _damaged(folder)
        await refused(sandboxes, 3, BadState, "'geo' is damaged")
        _missing(folder)
        await refused(sandboxes, 3, UnknownState, "no session is saved as 'geo'")


async def test_a_caller_that_leaves_while_several_are_opened_leaves_none(plain: Profile) -> None:
    await saved(plain)
    async with sandboxes_of(plain) as sandboxes:
        for seconds in (0.0, 0.02, 0.1, 0.3):
            with anyio.move_on_after(seconds):
                async with sandboxes.open("geo", count=3):
                    await anyio.sleep_forever()
            await nothing_is_left(sandboxes)


async def test_a_session_has_the_state_of_its_own_language_whatever_it_runs_first(
    plain: Profile, profile: Profile
) -> None:
    await saved(plain, "x = 41\nopen('made', 'w').close()")
    async with Sandboxes(changed(profile, pool={"min": 0})) as sandboxes, sandboxes.session() as session:
        for _ in range(2):
            assert (await session.run("ls", language="bash")).stdout.text == "made\n"
            assert (await session.run("x")).result == "41"
            await session.reset()


async def test_a_state_that_does_not_fit_the_limits_that_a_caller_lowered_is_refused_with_this_step(
    plain: Profile, profile: Profile
) -> None:
    await saved(plain, "import os\nwith open('large', 'wb') as file: file.write(os.urandom(12 << 20))")
    async with Sandboxes(changed(profile, pool={"min": 0})) as sandboxes:
        async with sandboxes.session(limits={"disk": 8 * MIB}) as session:
            with pytest.raises(
                BadState, match=r"do not fit.*8MiB.*; try again with no lower limits than the profile's"
            ):
                await session.run("1")
        assert (await sandboxes.run("len(open('large', 'rb').read())")).result == str(12 << 20)


@pytest.mark.parametrize("backend_name", ["embedded"])
@pytest.mark.parametrize("memory", [12, 16])
async def test_a_state_that_does_not_fit_into_the_memory_is_refused_with_this_cause(
    plain: Profile, profile: Profile, memory: int
) -> None:
    await saved(plain, "import os\nwith open('large', 'wb') as file: file.write(os.urandom(12 << 20))")
    async with (
        Sandboxes(changed(profile, pool={"min": 0})) as sandboxes,
        sandboxes.session(limits={"memory": memory * MIB}) as session,
    ):
        with pytest.raises(BadState, match=r"start from a saved one, .* memory"):
            await session.run("1")


async def test_a_state_with_a_library_that_is_denied_now_is_refused_by_name(plain: Profile, profile: Profile) -> None:
    await saved(plain, INSTALLED)
    async with Sandboxes(changed(profile, languages={"python": {"start": "geo", "deny": ("evil",)}})) as sandboxes:
        with pytest.raises(BadState, match=r"sessions of python start from a saved one, .*'evil' '1\.0' was installed"):
            await sandboxes.run("1")


async def test_an_error_in_who_is_told_of_many_that_open_is_raised_as_it_is_and_leaves_none(plain: Profile) -> None:
    async def on_progress(text: str) -> None:
        raise ZeroDivisionError(text)

    await saved(plain, "x = 41")
    async with Sandboxes(changed(plain, pool={"min": 0})) as sandboxes:
        with pytest.raises(ZeroDivisionError, match="opened 1 of 3"):
            async with sandboxes.open("geo", count=3, on_progress=on_progress):
                pass
        assert sandboxes.service.sessions.list() == ()
        await sandboxes.service.pool_until(lambda pool: not pool.leased + pool.warming + pool.closing)


@pytest.mark.parametrize("backend_name", ["embedded"])
async def test_a_state_with_more_files_than_a_folder_can_have_is_refused(plain: Profile, profile: Profile) -> None:
    await saved(plain, "for number in range(60): open(f'file{number}', 'w').close()")
    async with sandboxes_of(profile, limits={"files": 50}) as sandboxes:
        with pytest.raises(BadState, match=r"the files do not fit: a folder can have 50 \(limits\.files"):
            await sandboxes.run("1")
    async with sandboxes_of(profile, limits={"files": 80}) as sandboxes:
        assert (await sandboxes.run("len(__import__('os').listdir())")).result == "60"
