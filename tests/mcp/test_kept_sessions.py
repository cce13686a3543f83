"""Sessions that outlive their server, with real server processes: however one ends, the next one goes on with them."""

import re
import secrets
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp.types import TextResourceContents

from llm_sandbox_mcp.cli.toml import as_toml
from llm_sandbox_mcp.profile.sections import LanguageSection
from tests.disks import fill, small_disk

from ..engines import host_folder, small_profile
from ..local_index import local_index, wheel
from .hosts import Host, host
from .results import answer, call, refusal, text
from .serving import bearing, start, stop

pytestmark = [pytest.mark.anyio, pytest.mark.one_protocol]

MANAGE = "manage_session"
WAYS = ["input", "SIGTERM", "SIGINT"]
MODERN = "2026-07-28"
SOON = 20.0
"""Seconds for the end of a server. Usually it takes one, as hosts wait for two."""
STARTED_AGAIN = "the server has started again since, or another one made it"


@pytest.fixture(autouse=True)
async def _bounded(embedded: None) -> AsyncIterator[None]:
    with anyio.fail_after(100):
        yield


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder with the profile of all servers of a test, their store, and what they have while they run."""
    with host_folder() as folder:
        written(folder)
        yield folder
        assert not [*(folder / "runtime").glob("*")]


def written(folder: Path, **changes: Mapping[str, object]) -> Path:
    """The file of a small profile that keeps sessions in the folder, with these changes; for Python, of its index."""
    python = LanguageSection.model_validate(changes.pop("python", {}))
    sessions = {"keep": True, "max": 12, "starts_per_second": 1000.0, **changes.pop("sessions", {})}
    profile = small_profile("embedded", folder, sessions=sessions, **changes)
    path = folder / "profile.toml"
    path.write_text(as_toml(profile.model_copy(update={"languages": {"python": python}})))
    return path


def states(folder: Path) -> list[Path]:
    """All files in the store."""
    return sorted(path for path in (folder / "saved").rglob("*") if path.is_file())


async def ends(server: Host, way: str = "SIGTERM") -> None:
    """Ends a server, and requires that it takes that well."""
    with anyio.fail_after(SOON):
        assert await server.end(way) == 0, server.log.read_text()
    assert not server.log.read_text()


async def opened(client: Client, code: str, **options: Any) -> str:
    """Runs code in a new session; returns its id."""
    ran = await answer(client, "execute_code", code=code, **options)
    assert ran["status"] == "ok", ran
    return str(ran["session_id"])


async def goes_on(client: Client, session_id: str, code: str) -> tuple[str, list[str]]:
    """Runs code in a session that must have its state; returns what it printed, and the notes."""
    ran = await answer(client, "execute_code", code=code, session_id=session_id)
    assert (ran["status"], ran["session_state"], ran["session_id"]) == ("ok", "kept", session_id), ran
    return ran["stdout"], ran["notes"]


WORK = """
import socket
import single
numbers = [1, 2]
opened = socket.socket()
open('kept.txt', 'w').write('content')
open('/tmp/more', 'w').write('more')
"""
LOOK = "print(numbers, open('kept.txt').read(), open('/tmp/more').read(), single.ANSWER)"


@pytest.mark.parametrize("way", WAYS)
async def test_however_a_server_ends_the_next_one_has_all_that_its_sessions_had(
    place: Path, era: str, way: str
) -> None:
    with local_index() as index:
        index.add_project("single", wheel("single"), index)
        profile = written(place, python={"index": f"{index.url}/simple/"})
        async with host(profile, era) as first:
            ran = await answer(first.client, "execute_code", code=WORK, libraries=["single"])
            session_id, [artifact] = ran["session_id"], ran["artifacts"]
            await ends(first, way)
    async with host(profile, era) as second:
        printed, notes = await goes_on(second.client, session_id, LOOK)
        assert printed == "[1, 2] content more 42\n"
        put_aside, *not_kept = notes
        assert re.fullmatch(
            r"the session was put aside \S+ ago, and is open again as it was then, "
            r"with \d variables of python, \d+ files and folders \(\d+ ms\)",
            put_aside,
        ), notes
        [of_socket] = [note for note in not_kept if "opened" in note]
        assert of_socket.startswith("not kept: "), notes
        assert await goes_on(second.client, session_id, "print(numbers)") == ("[1, 2]\n", [])
        [contents] = (await second.client.read_resource(artifact["uri"])).contents
        assert isinstance(contents, TextResourceContents)
        assert contents.text == "content"
        await ends(second, way)


async def test_any_first_call_opens_a_session_again(place: Path, era: str) -> None:
    profile = written(place, sessions={"save_timeout": SOON})
    kept = "open('kept.txt', 'w').write('content') and None; number = 6"

    async def read(client: Client, one: str) -> None:
        [contents] = (await client.read_resource(f"sandbox://sessions/{one}/artifacts/kept.txt")).contents
        assert isinstance(contents, TextResourceContents)
        assert contents.text == "content"

    async def list_artifacts(client: Client, one: str) -> None:
        [found] = (await answer(client, "get_artifacts", session_id=one))["artifacts"]
        assert found["name"] == "kept.txt"

    async def copy_out(client: Client, one: str) -> None:
        found = await answer(client, "copy_file", direction="out", path="kept.txt", session_id=one)
        assert found["content"] == "content"

    async def copy_in(client: Client, one: str) -> None:
        await answer(client, "copy_file", content="new", path="new.txt", session_id=one)

    async def install_nothing(client: Client, one: str) -> None:
        assert "libraries must not be empty" in await refusal(client, "install_libraries", libraries=[], session_id=one)

    async def branch(client: Client, one: str) -> None:
        second = (await answer(client, MANAGE, action="branch", session_id=one))["session_id"]
        assert second != one
        assert await goes_on(client, second, "print(number)") == ("6\n", [])

    async def save(client: Client, one: str) -> None:
        await answer(client, MANAGE, action="save", session_id=one, name="geo")
        named = (await answer(client, MANAGE, action="open", name="geo"))["session_id"]
        assert await goes_on(client, named, "print(number)") == ("6\n", [])

    async def interrupt(client: Client, one: str) -> None:
        found = await call(client, MANAGE, action="interrupt", session_id=one)
        assert "nothing to interrupt" in text(found)

    calls: list[Callable[[Client, str], Awaitable[None]]] = [
        read, list_artifacts, copy_out, copy_in, install_nothing, branch, save, interrupt,
    ]  # fmt: skip
    async with host(profile, era) as first:
        ids = [await opened(first.client, kept) for _ in calls]
        restarted, cleared = [await opened(first.client, kept) for _ in range(2)]
        await ends(first)
    async with host(profile, era) as second:
        for act, one in zip(calls, ids, strict=True):
            await act(second.client, one)
            printed, notes = await goes_on(second.client, one, "print(number, open('kept.txt').read())")
            assert printed == "6 content\n", act
            assert len([note for note in notes if "was put aside" in note]) == 1, (act, notes)
            await answer(second.client, MANAGE, action="close", session_id=one)

        await answer(second.client, MANAGE, action="restart", session_id=restarted)
        code = "print(open('kept.txt').read(), 'number' in globals())"
        ran = await answer(second.client, "execute_code", code=code, session_id=restarted)
        assert ran["stdout"] == "content False\n"

        await answer(second.client, MANAGE, action="clear", session_id=cleared)
        assert not (await answer(second.client, "get_artifacts", session_id=cleared))["artifacts"]
        assert (await goes_on(second.client, cleared, "print(number)"))[0] == "6\n"
        await ends(second)


async def test_nothing_is_left_of_sessions_that_are_closed_or_reset(place: Path, era: str) -> None:
    profile = place / "profile.toml"
    async with host(profile, era) as first:
        early, late, emptied, used = [await opened(first.client, "number = 6") for _ in range(4)]
        await answer(first.client, MANAGE, action="close", session_id=early)
        await ends(first)
    assert {path.name.split(".")[0] for path in states(place)} == {late, emptied, used}
    async with host(profile, era) as second:
        assert STARTED_AGAIN in await refusal(second.client, "execute_code", code="1", session_id=early)
        assert text(await call(second.client, MANAGE, action="close", session_id=late)).startswith("closed: ")
        assert "it was closed; " in await refusal(second.client, "execute_code", code="1", session_id=late)
        await answer(second.client, MANAGE, action="reset", session_id=emptied)
        await goes_on(second.client, used, "number")
        await answer(second.client, MANAGE, action="reset", session_id=used)
        assert not states(place)
        for one in (emptied, used):
            ran = await answer(second.client, "execute_code", code="print('number' in globals())", session_id=one)
            assert (ran["stdout"], ran["notes"]) == ("False\n", [])
            await answer(second.client, MANAGE, action="reset", session_id=one)
        await ends(second)
    assert not states(place)
    async with host(profile, era) as third:
        for one in (emptied, used):
            assert STARTED_AGAIN in await refusal(third.client, "execute_code", code="1", session_id=one)


COUNTS = "n = 0\nprint('on', flush=True)\nwhile True: n += 1"


@pytest.mark.parametrize("way", WAYS)
async def test_what_runs_when_the_server_ends_is_interrupted_and_answered(place: Path, era: str, way: str) -> None:
    profile = place / "profile.toml"
    async with host(profile, era) as first:
        session_id = await opened(first.client, "before = 1")
        async with anyio.create_task_group() as tasks:
            running = anyio.Event()
            status = "" if way == "input" else "cancelled"
            tasks.start_soon(runs, first.client, session_id, COUNTS, status, running)
            await running.wait()
            await ends(first, way)
    async with host(profile, era) as second:
        found, notes = await goes_on(second.client, session_id, "print(before, n > 0)")
        assert found == "1 True\n"
        told = "code ran when the server ended: it was interrupted, and its result is cancelled"
        assert told in notes, notes


async def test_what_ends_in_time_is_answered_and_not_called_interrupted(place: Path, era: str) -> None:
    written(place, sessions={"save_timeout": 2 * SOON})
    async with host(place / "profile.toml", era) as first:
        session_id = await opened(first.client, "import time, os")
        async with anyio.create_task_group() as tasks:
            running = anyio.Event()
            code = "print('on', flush=True); time.sleep(0.5); n = 1"
            tasks.start_soon(runs, first.client, session_id, code, "ok", running)
            await running.wait()
            await ends(first)
    async with host(place / "profile.toml", era) as second:
        printed, [note] = await goes_on(second.client, session_id, "print(n)")
        assert printed == "1\n"
        assert note.startswith("the session was put aside "), note


async def runs(client: Client, session_id: str, code: str, status: str, running: anyio.Event) -> None:
    """Runs code that prints "on" and ends with that status, or without an answer if there is none."""

    async def printed(progress: float, total: float | None, message: str | None) -> None:
        running.set()

    run = partial(client.call_tool, "execute_code", {"code": code, "session_id": session_id}, progress_callback=printed)
    if not status:
        with pytest.raises(MCPError, match="Connection closed"):
            await run()
        return
    ended = (await run()).structured_content
    assert ended is not None
    assert (ended["status"], ended["stdout"]) == (status, "on\n"), ended


async def test_what_a_killed_server_had_not_put_aside_is_lost_and_the_next_one_says_so(place: Path, era: str) -> None:
    profile = place / "profile.toml"
    async with host(profile, era) as first:
        session_id = await opened(first.client, "n = 1; open('n', 'w').write('1') and None")
        await ends(first)
    async with host(profile, era) as second:
        await goes_on(second.client, session_id, "n = 2; open('n', 'w').write('2') and None")
        never = await opened(second.client, "n = 3")
        await second.end("SIGKILL")
    async with host(profile, era) as third:
        assert STARTED_AGAIN in await refusal(third.client, "execute_code", code="n", session_id=never)
        printed, [note] = await goes_on(third.client, session_id, "print(n, open('n').read())")
        assert printed == "1 1\n"
        assert note.startswith("its server was killed, or still has it; the session is as it was "), note
        assert "; what came after that, if anything, is lost" in note
        assert await goes_on(third.client, session_id, "n = 4") == ("", [])
        await ends(third)
    async with host(profile, era) as fourth:
        printed, [note] = await goes_on(fourth.client, session_id, "print(n, open('n').read())")
        assert printed == "4 1\n"
        assert note.startswith("the session was put aside "), note


async def test_two_servers_with_one_store_go_on_by_themselves_and_the_later_state_counts(place: Path, era: str) -> None:
    profile = place / "profile.toml"
    writes = "n = {0}; open('n', 'w').write('{0}') and None"
    look = "print(n, open('n').read())"
    async with host(profile, era) as first:
        session_id = await opened(first.client, writes.format(1))
        await ends(first)
    async with host(profile, era) as second, host(profile, era) as third:
        for number, server in ((2, second), (3, third)):
            printed, [note] = await goes_on(server.client, session_id, look)
            assert printed == "1 1\n"
            assert ("put aside" in note) is (server is second)
            assert await goes_on(server.client, session_id, writes.format(number)) == ("", [])
        assert await goes_on(second.client, session_id, look) == ("2 2\n", [])
        await ends(third)
        assert await goes_on(second.client, session_id, look) == ("2 2\n", [])
        await ends(second)
    assert f"{session_id}.state" in {path.name for path in states(place)}
    async with host(profile, era) as fourth:
        assert (await goes_on(fourth.client, session_id, look))[0] == "2 2\n"


@pytest.mark.parametrize("part", ["content", "description"])
async def test_a_damaged_state_is_refused_in_one_line_and_close_removes_it(place: Path, era: str, part: str) -> None:
    profile = place / "profile.toml"
    async with host(profile, era) as first:
        session_id = await opened(first.client, "n = 1; open('n', 'wb').write(bytes(10000)) and None")
        await ends(first)
    files = states(place)
    file = next(one for one in files if (one.stem == session_id) == (part == "description"))
    content = bytearray(file.read_bytes())
    content[len(content) // 3 if part == "content" else -80] ^= 1
    file.write_bytes(content)
    async with host(profile, era) as second:
        for _ in range(2):
            refused = await refusal(second.client, "execute_code", code="n", session_id=session_id)
            assert f"the session cannot be opened again: {session_id!r} is damaged: " in refused
            assert refused.endswith("; call without session_id to open a new one"), refused
        assert states(place) == files
        await answer(second.client, MANAGE, action="close", session_id=session_id)
        assert not states(place)
        await ends(second)
    assert not states(place)


def is_file(store: Path) -> None:
    shutil.rmtree(store)
    store.write_text("")


def is_full(store: Path) -> None:
    fill(store)


def is_read_only(store: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(store)], check=True)


@pytest.mark.parametrize("fails", [is_file, is_full, is_read_only])
async def test_a_store_that_fails_does_not_keep_the_server_from_ending(
    place: Path, era: str, fails: Callable[[Path], None]
) -> None:
    store = place / "saved"
    async with host(place / "profile.toml", era) as first:
        await opened(first.client, "number = 6")
        if fails is is_file:
            fails(store)
            code = await ended_in_time(first)
        else:
            with small_disk(store, "1m"):
                fails(store)
                code = await ended_in_time(first)
        [line] = first.log.read_text().splitlines()
        assert " WARNING " in line
        assert f"a session could not be saved: the folder for saved sessions, {store}, cannot be used: " in line
    assert code == 0


async def test_a_store_that_fails_costs_nobody_the_list_of_live_sessions(place: Path, era: str) -> None:
    async with host(place / "profile.toml", era) as first:
        session_id = await opened(first.client, "number = 6")
        is_file(place / "saved")
        listed = text(await call(first.client, MANAGE, action="list"))
        assert session_id in listed
        assert f"put aside: unknown, as the folder for saved sessions, {place / 'saved'}, cannot be used: " in listed


async def ended_in_time(server: Host) -> int:
    with anyio.fail_after(SOON):
        return await server.end("input")


def over_http(folder: Path, token: str) -> tuple[Path, dict[str, str]]:
    """A profile for servers over HTTP, with a token if there is one, and the headers of its clients."""
    if not token:
        return written(folder), {}
    (folder / "token").write_text(token)
    return written(folder, http={"token_file": str(folder / "token")}), {"authorization": f"Bearer {token}"}


async def test_callers_with_a_token_go_on_after_a_restart(place: Path) -> None:
    profile, bearer = over_http(place, secrets.token_hex(16))
    ways = MODERN, "legacy", "sse"
    first = start(profile)
    ids = []
    for way in ways:
        async with bearing(first.url, way, bearer) as client:
            ids.append(await opened(client, f"who = {way!r}"))
    assert not stop(first)
    second = start(profile)
    for way, one in zip(ways, ids, strict=True):
        async with bearing(second.url, way, bearer) as client:
            printed, [note] = await goes_on(client, one, "print(who)")
            assert printed == f"{way}\n"
            assert "was put aside" in note
    assert not stop(second)


async def test_of_callers_who_need_no_token_nothing_is_kept(place: Path) -> None:
    profile, _ = over_http(place, "")
    first = start(profile)
    async with bearing(first.url, MODERN, {}) as client:
        session_id = await opened(client, "n = 1")
    assert not stop(first)
    assert not states(place)
    second = start(profile)
    async with bearing(second.url, MODERN, {}) as client:
        assert STARTED_AGAIN in await refusal(client, "execute_code", code="n", session_id=session_id)
    assert not stop(second)
