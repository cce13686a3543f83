"""The tools, over both protocols, on real sandboxes."""

import re
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.types import ImageContent

from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.server import build_server
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service

from ..documents import DOCUMENTS
from ..engines import need
from ..growth import kept
from .fake import PNG
from .results import answer, call, refusal, text

pytestmark = [pytest.mark.anyio, pytest.mark.one_protocol]

_TABLE = DOCUMENTS["docs/pages/what-a-model-sees.md"].partition("| code | note |")[2].partition("\n\n")[0]
HINTS = re.findall(r"^\| `([^`]+)`.*\| `([^`]+)` \|$", _TABLE, re.MULTILINE)
"""Code that fails because it is in a sandbox, and the note of the result."""


@pytest.fixture(scope="module")
async def service(anyio_backend: str) -> AsyncIterator[Service]:
    """A service that all tests share."""
    await need("embedded")
    async with open_service(load_profile(over={"pool": {"stock": 0}})) as service:  # as many are warm after each test
        await service.warm()
        await execute(service, "1", keep_session=False)
        with kept("embedded"):
            yield service


@pytest.fixture
async def client(service: Service, era: str) -> AsyncIterator[Client]:
    async with Client(build_server(service, host_files=True), mode=era) as client:
        yield client
    for session in service.sessions.list():
        await service.sessions.close(session.id)
    await service.pool_until(lambda now: not now.closing)


@pytest.fixture(autouse=True)
async def _bounded() -> AsyncIterator[None]:
    with anyio.fail_after(30):
        yield


async def run(client: Client, code: str, **arguments: Any) -> dict[str, Any]:
    return await answer(client, "execute_code", code=code, **arguments)


async def test_variables_persist_in_the_session_that_the_first_run_opened(client: Client) -> None:
    first = await run(client, "x = 20")
    second = await run(client, "print('hi'); x + y", session_id=first["session_id"], variables={"y": 22})
    assert (second["status"], second["exit_code"], second["stdout"], second["result"]) == ("ok", 0, "hi\n", "42")
    assert second["session_id"] == first["session_id"]
    assert second["session_state"] == "kept"


async def test_code_reads_the_given_input_and_is_told_where_to_give_it(client: Client) -> None:
    empty = await run(client, "age = input()")
    assert (empty["status"], empty["notes"]) == (
        "error",
        ["standard input is empty; give the text that the code reads in stdin"],
    )
    given = await run(client, "age = input(); age", stdin="42", session_id=empty["session_id"])
    assert (given["status"], given["result"]) == ("ok", "'42'")


async def test_the_page_has_hints() -> None:
    assert len(HINTS) == 6


@pytest.mark.parametrize(("code", "note"), HINTS)
async def test_code_that_fails_because_of_the_sandbox_gets_the_note_on_the_page(
    client: Client, code: str, note: str
) -> None:
    failed = await run(client, code)
    assert (failed["status"], failed["notes"]) == ("error", [note])


async def test_an_error_in_the_code_is_a_result_and_keeps_the_state(client: Client) -> None:
    opened = await run(client, "x = 1")
    result = await call(client, "execute_code", code="x = 2; 1 / 0", session_id=opened["session_id"])
    assert not result.is_error
    assert "status: error" in text(result)
    assert "ZeroDivisionError" in text(result)
    assert (await run(client, "x", session_id=opened["session_id"]))["result"] == "2"


async def test_a_timeout_is_a_result_with_the_output_until_then(client: Client) -> None:
    ended = await run(client, "print('so far', flush=True)\nwhile True: pass", timeout_seconds=0.5)
    assert (ended["status"], ended["stdout"]) == ("timeout", "so far\n")


async def test_output_that_is_too_long_to_show_is_a_file_and_is_read_in_parts(client: Client) -> None:
    result = await call(client, "execute_code", code="print('line ' * 1_000_000)")
    assert isinstance(result.structured_content, dict)
    session_id = result.structured_content["session_id"]
    name = "run-1-stdout.txt"
    assert f"in the file {name} of the working directory; get_artifacts returns parts of it" in text(result)
    [artifact] = result.structured_content["artifacts"]
    part = {"session_id": session_id, "names": [name], "offset": artifact["size_bytes"] - 6}
    assert (await answer(client, "get_artifacts", **part))["text"] == "line \n"
    found = await run(client, f"import os; os.path.getsize('{name}')", session_id=session_id)
    assert (found["result"], found["artifacts"]) == (str(artifact["size_bytes"]), [])


async def test_a_progress_bar_is_one_line_while_it_runs_and_at_its_end(client: Client) -> None:
    bars = "for i in $(seq 300); do printf '\\rprogress %d' $i; printf '\\r%d %%' $i >&2; done"
    going = await run(client, f"{bars}; sleep 100", language="bash", wait_seconds=1)
    assert (going["status"], going["stdout"], going["stderr"]) == ("running", "progress 300", "300 %")
    await answer(client, "manage_session", action="cancel", run_id=going["run_id"])
    ended = await run(client, f"{bars}; echo; echo done", language="bash")
    assert (ended["stdout"], ended["stderr"], ended["artifacts"]) == ("progress 300\ndone\n", "300 %", [])


async def test_a_session_that_is_not_kept_is_gone_at_once(client: Client) -> None:
    ended = await run(client, "1", keep_session=False)
    assert ended["session_state"] == "ended"
    assert ended["session_id"][:8] not in await refusal(client, "execute_code", code="1", session_id="0" * 32)
    await refusal(client, "execute_code", code="1", session_id=ended["session_id"])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"language": "cobol"}, "cobol"),
        ({"session_id": "nonsense"}, "session"),
        ({"code": "#" * (1 << 20) + "#"}, "code"),
        ({"libraries": ["--index-url=x"]}, "--index-url=x"),
        ({"libraries": ["git+https://example.org/x"]}, "git+https://"),
    ],
)
async def test_invalid_arguments_are_refused_in_one_line_and_open_no_session(
    client: Client, arguments: dict[str, Any], named: str
) -> None:
    assert named in await refusal(client, "execute_code", **({"code": "1"} | arguments))
    assert (await answer(client, "manage_session", action="list"))["sessions"] == []


async def test_a_figure_comes_back_as_an_image_and_outlives_its_session(client: Client) -> None:
    png = b64encode(PNG).decode()
    code = f"import base64\nopen('figure.png', 'wb').write(base64.b64decode('{png}'))"
    result = await call(client, "execute_code", code=code, keep_session=False)
    assert isinstance(result.structured_content, dict)
    [artifact] = result.structured_content["artifacts"]
    assert (artifact["name"], artifact["width"], artifact["height"]) == ("figure.png", 3, 2)
    assert any(isinstance(block, ImageContent) and block.data == png for block in result.content)
    session_id = result.structured_content["session_id"]
    again = await call(client, "get_artifacts", session_id=session_id, names=["figure.png"])
    assert any(isinstance(block, ImageContent) and block.data == png for block in again.content)


async def test_files_go_in_and_come_out_unchanged(client: Client) -> None:
    session_id = (await run(client, "1"))["session_id"]
    data = bytes(range(256))
    there = {"session_id": session_id, "path": "data/all.bin", "encoding": "base64"}
    await answer(client, "copy_file", **there, content=b64encode(data).decode())
    seen = await run(client, "len(open('data/all.bin', 'rb').read())", session_id=session_id)
    assert seen["result"] == "256"
    out = await answer(client, "copy_file", **there, direction="out")
    assert b64decode(out["content"]) == data


async def test_the_first_file_opens_a_session(client: Client) -> None:
    copied = await call(client, "copy_file", path="a.csv", content="x\n1\n")
    assert isinstance(copied.structured_content, dict)
    session_id = copied.structured_content["session_id"]
    assert text(copied) == f"session: {session_id}\ncopied in: a.csv (4B)"
    assert (await run(client, "open('a.csv').read()", session_id=session_id))["result"] == "'x\\n1\\n'"


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "a\0b"])
async def test_paths_outside_the_working_directory_are_refused(client: Client, path: str) -> None:
    session_id = (await run(client, "1"))["session_id"]
    for direction in ({"content": "x"}, {"direction": "out"}):
        assert "path" in await refusal(client, "copy_file", session_id=session_id, path=path, **direction)


async def test_host_paths_are_refused_unless_the_operator_opens_a_folder(client: Client) -> None:
    session_id = (await run(client, "1"))["session_id"]
    said = await refusal(client, "copy_file", session_id=session_id, path="x", host_path="/etc/hostname")
    assert "files.folders" in said


async def test_output_streams_as_progress_while_the_code_runs(client: Client) -> None:
    seen: list[tuple[float, str]] = []
    waiting = anyio.Event()

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, message or ""))
        if "first" in "".join(shown for _, shown in seen):
            waiting.set()

    session_id = (await run(client, "1"))["session_id"]
    code = "print('first', flush=True)\nwhile True: pass"
    async with anyio.create_task_group() as tasks:

        async def execute() -> None:
            arguments = {"code": code, "session_id": session_id}
            result = await client.call_tool("execute_code", arguments, progress_callback=progressed)
            assert result.structured_content is not None
            assert result.structured_content["stdout"] == "first\n"

        tasks.start_soon(execute)
        await waiting.wait()
        await answer(client, "manage_session", action="interrupt", session_id=session_id)
    numbers = [number for number, _ in seen]
    assert numbers == sorted(set(numbers))


async def test_cancelling_the_request_interrupts_the_code_and_keeps_the_session(client: Client) -> None:
    session_id = (await run(client, "x = 7"))["session_id"]
    printed = anyio.Event()

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        printed.set()

    async with anyio.create_task_group() as tasks:

        async def execute() -> None:
            arguments = {"code": "print('on', flush=True)\nwhile True: pass", "session_id": session_id}
            await client.call_tool("execute_code", arguments, progress_callback=progressed)

        tasks.start_soon(execute)
        await printed.wait()
        tasks.cancel_scope.cancel()
    assert (await run(client, "x", session_id=session_id))["result"] == "7"


async def test_a_reset_clears_the_state_and_keeps_the_id_and_a_close_ends_the_session(client: Client) -> None:
    session_id = (await run(client, "x = 7"))["session_id"]
    await answer(client, "manage_session", action="reset", session_id=session_id)
    assert (await run(client, "'x' in globals()", session_id=session_id))["result"] == "False"
    assert (await answer(client, "manage_session", action="close", session_id=session_id))["sessions"] == []
    await refusal(client, "manage_session", action="close", session_id=session_id)


async def test_a_clear_empties_the_artifacts_and_the_figures_and_keeps_the_state(client: Client) -> None:
    code = "import os\nx = 7\nopen('kept.txt', 'w').write('a')\nopen(os.environ['SANDBOX_FIGURES'] + '/f.svg', 'w').close()"
    opened = await run(client, code)
    session_id = opened["session_id"]
    assert {artifact["name"] for artifact in opened["artifacts"]} == {"kept.txt", "f.svg"}
    assert (await run(client, "x", session_id=session_id))["artifacts"] == []
    cleared = await answer(client, "manage_session", action="clear", session_id=session_id)
    assert [session["session_id"] for session in cleared["sessions"]] == [session_id]
    assert (await answer(client, "get_artifacts", session_id=session_id))["artifacts"] == []
    left = await run(client, "x, os.listdir(), os.listdir(os.environ['SANDBOX_FIGURES'])", session_id=session_id)
    assert left["result"] == "(7, ['kept.txt'], [])"


async def test_a_clear_follows_no_link_that_replaces_the_folder_of_figures(client: Client) -> None:
    code = (
        "import os\nopen('kept.txt', 'w').close()\n"
        "figures = os.environ['SANDBOX_FIGURES']\nos.rmdir(figures)\nos.symlink(os.getcwd(), figures)"
    )
    session_id = (await run(client, code))["session_id"]
    await answer(client, "manage_session", action="clear", session_id=session_id)
    assert (await run(client, "os.listdir()", session_id=session_id))["result"] == "['kept.txt']"


async def test_a_session_that_has_ended_can_be_cleared_and_is_then_unknown(client: Client) -> None:
    session_id = (await run(client, "open('a.txt', 'w').close()", keep_session=False))["session_id"]
    assert (await answer(client, "manage_session", action="clear", session_id=session_id))["sessions"] == []
    await refusal(client, "get_artifacts", session_id=session_id)
    await refusal(client, "manage_session", action="clear", session_id=session_id)


async def test_bytes_that_are_not_text_leave_the_answer_valid(client: Client) -> None:
    printed = await run(client, r"import sys; sys.stdout.buffer.write(b'a\xff\x00\x1b]52;c;eA==\x07b') and None")
    assert printed["stdout"] == "a\ufffd\ufffd\x1b]52;c;eA==\x07b"
    assert any("UTF-8" in note for note in printed["notes"])
