"""The tools as a model calls them, over the server and the service, on sandboxes in memory."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.types import BlobResourceContents, EmbeddedResource, TextResourceContents

from llm_sandbox_mcp.backends.archive import END, header, padding
from llm_sandbox_mcp.server import build_server
from llm_sandbox_mcp.service import Service
from tests.mcp.results import answer, call, refusal, text

from .backend import PROGRAMS, MemoryBackend, MemoryProcess

pytestmark = pytest.mark.anyio


def tar(files: Mapping[str, bytes]) -> Callable[[MemoryProcess], Awaitable[int]]:
    """A `tar` that finds these files, whichever are asked for by name on its input or as its last argument."""

    async def program(process: MemoryProcess) -> int:
        asked = b""
        with suppress(anyio.EndOfStream):
            while "-T" in process.argv:
                asked += await process.receive()
        for name in asked.decode().split("\0")[:-1] or [process.argv[-1]]:
            content = files[name]
            await process.print(header(name, len(content)) + content + padding(len(content)))
        await process.print(END)
        return 0

    return program


FILES = {
    "a.txt": b"first",
    "b.txt": b"second",
    "euro.txt": "1 €".encode(),
    "binary": b"\0\xff",
    **{f"{number}.csv": b"" for number in range(201)},
}
"""What is in each sandbox."""


@pytest.fixture
def engine() -> MemoryBackend:
    return MemoryBackend({**PROGRAMS, "tar": tar(FILES)})


@pytest.fixture
def changes() -> dict[str, Mapping[str, object]]:
    return {"artifacts": {"files": 1000, "store_files": 1000}}


@pytest.fixture
async def client(service: Service) -> AsyncIterator[Client]:
    async with Client(build_server(service, host_files=True)) as client:
        yield client


async def run(client: Client, code: str, **arguments: Any) -> dict[str, Any]:
    return await answer(client, "execute_code", code=code, language="script", **arguments)


async def left(client: Client, *names: str, **arguments: Any) -> str:
    """The session of a run that left these files behind."""
    done = await run(client, f"report {json.dumps({'files': names})}", **arguments)
    assert [artifact["name"] for artifact in done["artifacts"]] == [*names]
    return str(done["session_id"])


async def manage(client: Client, action: str, **arguments: Any) -> dict[str, Any]:
    return await answer(client, "manage_session", action=action, **arguments)


async def test_a_timeout_up_to_the_limit_of_the_profile_is_taken_and_a_longer_one_refused(
    client: Client, service: Service
) -> None:
    longest = service.profile.limits.timeout
    asked = {"code": "print one", "language": "script"}
    assert (await run(client, "print one", timeout_seconds=longest))["stdout"] == "one\n"
    refused = await refusal(client, "execute_code", timeout_seconds=longest + 0.5, **asked)
    assert f"timeout_seconds must be at most {longest:g}; got {longest + 0.5:g}; send less" in refused
    # A profile can allow less than the default, which is not refused.
    assert (await run(client, f"sleep {longest + 1}"))["status"] == "timeout"


async def test_what_ran_is_text_and_value_alike(client: Client) -> None:
    result = await call(client, "execute_code", code="print one\ncomplain two\nget x", language="script")
    value = result.structured_content
    assert value is not None
    assert (value["status"], value["exit_code"], value["run_id"]) == ("ok", 0, "")
    assert (value["stdout"], value["stderr"]) == ("one\n", "two\n")
    assert (value["stdout_omitted_bytes"], value["stderr_omitted_bytes"]) == (0, 0)
    assert text(result) == f"session: {value['session_id']} (kept)\nstdout:\none\nstderr:\ntwo"
    failed = await call(client, "execute_code", code="fail 3", language="script")
    assert text(failed).startswith("status: error (exit code 3)\nsession: ")
    assert text(failed).endswith("\n(no output)")


async def test_a_run_that_takes_longer_than_its_call_is_found_read_and_cancelled(client: Client) -> None:
    going = await run(client, "print one\nsleep 1.5\nprint two\nsleep 1000", wait_seconds=1, timeout_seconds=3)
    assert (going["status"], going["stdout"], going["exit_code"]) == ("running", "one\n", -1)
    assert 900 <= going["duration_ms"] <= 1100
    assert going["notes"][0].startswith("its code is running, and nothing else can run in its session; call manage_")
    later = (await manage(client, "wait", run_id=going["run_id"], wait_seconds=1))["run"]
    assert (later["status"], later["stdout"]) == ("running", "two\n")
    now = await manage(client, "read", run_id=going["run_id"])
    assert (now["run"]["status"], now["run"]["stdout"]) == ("running", "")
    assert 1900 <= now["run"]["duration_ms"] <= 2200
    ended = await manage(client, "cancel", run_id=going["run_id"])
    assert (ended["run"]["status"], ended["run"]["stdout"]) == ("cancelled", "one\ntwo\n")


async def test_sessions_are_listed_with_their_runs_and_the_sandboxes_they_take(client: Client) -> None:
    listed = await call(client, "manage_session", action="list")
    assert text(listed).splitlines()[0] == "no sessions"
    kept = (await run(client, "print one"))["session_id"]
    going = await run(client, "sleep 1000", wait_seconds=0)
    listed = await call(client, "manage_session", action="list")
    idle, busy, run_line, pool = text(listed).splitlines()
    assert idle.startswith(f"{kept}: idle, 1 runs, script, expires in ")
    assert busy.startswith(f"{going['session_id']}: running, ")
    assert run_line.startswith(f"  run {going['run_id']}: ")
    assert pool.startswith("sandboxes: ")
    only = await manage(client, "list", session_id=kept)
    assert [session["session_id"] for session in only["sessions"]] == [kept]
    await manage(client, "cancel", run_id=going["run_id"])


async def test_a_session_is_interrupted_cleared_reset_and_closed(client: Client) -> None:
    session = await left(client, "a.txt")
    await run(client, "set x 1", session_id=session)

    async def done(action: str) -> str:
        return text(await call(client, "manage_session", action=action, session_id=session)).splitlines()[0]

    assert await done("interrupt") == f"nothing to interrupt, as nothing runs: {session}"
    going = await run(client, "sleep 1000", session_id=session, wait_seconds=0.5)
    assert await done("interrupt") == f"interrupted: {session}"
    ended = (await manage(client, "wait", run_id=going["run_id"]))["run"]
    assert ended["status"] == "cancelled"
    assert len((await answer(client, "get_artifacts", session_id=session))["artifacts"]) == 1
    assert (await run(client, "get x", session_id=session))["result"] == "1"
    assert await done("restart") == f"restarted: {session}"
    assert (await run(client, "get x", session_id=session))["result"] == ""
    assert await done("reset") == f"reset: {session}"
    assert (await run(client, "get x", session_id=session))["result"] == ""
    assert len((await answer(client, "get_artifacts", session_id=session))["artifacts"]) == 1
    assert await done("close") == f"closed: {session}"
    assert "is not open: it was closed" in await refusal(
        client, "execute_code", code="a", language="script", session_id=session
    )
    assert await done("clear") == f"cleared: {session}"


@pytest.mark.parametrize("action", ["interrupt", "clear", "restart", "reset", "close"])
async def test_what_acts_on_a_session_needs_its_id(client: Client, action: str) -> None:
    assert f"session_id: {action} needs one; send the one" in await refusal(client, "manage_session", action=action)


@pytest.mark.parametrize("action", ["wait", "read", "cancel"])
async def test_what_is_about_a_run_needs_its_id(client: Client, action: str) -> None:
    assert f"run_id: {action} needs one; send the one" in await refusal(client, "manage_session", action=action)


async def test_artifacts_are_listed_and_returned_by_name(client: Client) -> None:
    session = await left(client, "a.txt", "b.txt", "binary")
    listed = await call(client, "get_artifacts", session_id=session)
    assert [line.split()[:2] for line in text(listed).splitlines()] == [
        ["artifact:", name] for name in ("a.txt", "b.txt", "binary")
    ]
    assert len(listed.content) == 1
    named = await call(client, "get_artifacts", session_id=session, names=["b.txt", "b.txt", "a.txt"])
    parts = [part.resource for part in named.content[1:] if isinstance(part, EmbeddedResource)]
    assert [part.text for part in parts if isinstance(part, TextResourceContents)] == ["second", "first"]
    refused = await refusal(client, "get_artifacts", session_id=session, names=["a.txt", "x"])
    assert "names: unknown artifact 'x'; available: 'a.txt', 'b.txt', 'binary'" in refused
    empty = (await run(client, "print one"))["session_id"]
    assert "available: none" in await refusal(client, "get_artifacts", session_id=empty, names=["x"])
    assert text(await call(client, "get_artifacts", session_id=empty)) == "no artifacts"


async def test_an_artifact_is_read_in_parts_that_split_no_character(client: Client) -> None:
    session = await left(client, "a.txt", "euro.txt", "binary")

    async def part(name: str, offset: int, length: int) -> tuple[str, int]:
        read = await answer(client, "get_artifacts", session_id=session, names=[name], offset=offset, length=length)
        return read["text"], read["next_offset"]

    assert await part("a.txt", 0, 4) == ("firs", 4)
    assert await part("a.txt", 4, 4) == ("t", 0)
    assert await part("a.txt", 1, 0) == ("irst", 0)
    assert await part("a.txt", 5, 4) == ("", 0)
    assert await part("euro.txt", 0, 4) == ("1 ", 2)
    assert await part("euro.txt", 2, 1) == ("€", 0)  # the shortest part has room for any character
    said = text(await call(client, "get_artifacts", session_id=session, names=["a.txt"], offset=1, length=4))
    assert said == "a.txt: bytes 1 to 5 of 5\nirst"
    said = text(await call(client, "get_artifacts", session_id=session, names=["euro.txt"], length=4))
    assert said == "euro.txt: bytes 0 to 2 of 5; call again with offset 2\n1 "
    for arguments, why in (
        ({"names": ["a.txt"], "offset": 6}, "offset must be at most 5, the artifact's size; got 6"),
        ({"names": ["a.txt", "euro.txt"], "offset": 1}, "names must be one name if offset or length is given"),
        ({"length": 1}, "names must be one name if offset or length is given"),
        ({"names": ["a.txt"], "length": 1, "save_to": "/"}, "save_to and a part of an artifact exclude each other"),
        ({"names": ["binary"], "length": 1}, "names: 'binary' is not text; leave out offset and length"),
    ):
        assert why in await refusal(client, "get_artifacts", session_id=session, **arguments)


async def test_a_long_list_comes_in_parts_the_newest_first(client: Client) -> None:
    names = [f"{number}.csv" for number in range(201)]
    session = await left(client, *names[:6])
    unknown = await refusal(client, "get_artifacts", session_id=session, names=["x"])
    assert unknown.endswith("'4.csv' and 1 more")
    await left(client, *names[6:], session_id=session)

    async def listed(**arguments: Any) -> tuple[list[str], int, str]:
        result = await call(client, "get_artifacts", session_id=session, **arguments)
        assert result.structured_content is not None
        value = result.structured_content
        return [one["name"] for one in value["artifacts"]], value["next_offset"], text(result).splitlines()[-1]

    assert await listed() == (
        names[1:],
        200,
        "note: artifacts 2 to 201 of 201; call again with offset 200 to list those before them",
    )
    assert await listed(offset=200) == (names[:1], 0, "note: artifacts 1 to 1 of 201")
    assert await listed(offset=1) == (names[:200], 0, "note: artifacts 1 to 200 of 201")
    refused = await refusal(client, "get_artifacts", session_id=session, offset=201)
    assert "offset must be below 201, the number of artifacts; got 201" in refused


async def test_files_of_this_machine_are_only_for_its_user(service: Service) -> None:
    async with Client(build_server(service, host_files=False)) as client:
        session = await left(client, "a.txt")
        for tool, arguments in (
            ("get_artifacts", {"save_to": "/tmp"}),
            ("copy_file", {"path": "a.txt", "host_path": "/tmp/a"}),
        ):
            assert "only a server on stdio can" in await refusal(client, tool, session_id=session, **arguments)


async def test_a_file_comes_out_as_text_or_base64(client: Client) -> None:
    session = await left(client, "a.txt")

    async def out(path: str, **arguments: Any) -> tuple[str, str]:
        result = await call(client, "copy_file", session_id=session, path=path, direction="out", **arguments)
        assert result.structured_content is not None
        return result.structured_content["content"], text(result)

    assert await out("a.txt") == ("first", "copied out: a.txt (5B)\nfirst")
    content, said = await out("a.txt", encoding="base64")
    assert content == "Zmlyc3Q="
    assert said.startswith("copied out: a.txt (5B); as base64 in content of the structured result, and at the link: ")
    assert said.endswith("/a.txt") and content not in said
    assert await out("0.csv") == ("", "copied out: 0.csv (0B)\n")
    content, said = await out("binary")
    assert content == "" and said.startswith(
        'copied out: binary (2B); too large or not text, read it at the link, or with encoding "base64": '
    )
    for arguments, why in (
        ({"direction": "out", "content": "x"}, 'content and direction "out" exclude each other'),
        ({"host_path": "/x", "content": "x"}, "content and host_path exclude each other"),
        ({"content": "%", "encoding": "base64"}, "content is not valid base64"),
    ):
        assert why in await refusal(client, "copy_file", session_id=session, path="a.txt", **arguments)


async def test_a_file_that_cannot_be_copied_leaves_no_session(service: Service, client: Client) -> None:
    for arguments, why in (
        ({"path": "../a", "content": "x"}, "path '../a'"),
        ({"path": "x" * 256, "content": "x"}, "a name of more than 255 bytes; shorten it"),
        ({"path": "a", "host_path": "/nothing/here"}, "files.folders"),
        # This engine has no programs that could write it.
        ({"path": "a", "content": "x"}, "no such program"),
        ({"path": "a", "direction": "out"}, 'session_id: direction "out" needs one'),
    ):
        assert why in await refusal(client, "copy_file", **arguments)
    assert service.sessions.list() == ()


async def test_an_artifact_is_a_resource_as_a_whole_and_in_parts(client: Client) -> None:
    session = await left(client, "a.txt")
    [artifact] = (await answer(client, "get_artifacts", session_id=session))["artifacts"]
    [whole] = (await client.read_resource(artifact["uri"])).contents
    assert isinstance(whole, TextResourceContents)
    assert whole.text == "first"
    [part] = (await client.read_resource(f"{artifact['uri']}?offset=1&length=3")).contents
    assert isinstance(part, BlobResourceContents)
    assert part.blob == "aXJz"
