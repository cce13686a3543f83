"""Long output in an answer: the text has it, the structured content its beginning and end, a file and an artifact all.

Progress bars are one line in both, and stay whole in the file and for programs.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress

import anyio
import pytest
from mcp import Client

from llm_sandbox_mcp.base.results import REPEATED
from llm_sandbox_mcp.base.units import format_size
from llm_sandbox_mcp.server import build_server
from llm_sandbox_mcp.service import Service
from tests.mcp.results import answer, call, text

from .backend import PROGRAMS, MemoryBackend, MemoryProcess
from .conftest import run

pytestmark = pytest.mark.anyio

SHOWN = 32 << 10
LINE = "0123456789 0123456789 012345678\n"


@pytest.fixture
def changes() -> dict[str, Mapping[str, object]]:
    return {"limits": {"shown": SHOWN}}


async def write(process: MemoryProcess) -> int:
    """A shell that takes a file."""
    with suppress(anyio.EndOfStream):
        while True:
            await process.receive()
    return 0


@pytest.fixture
def engine() -> MemoryBackend:
    return MemoryBackend({**PROGRAMS, "sh": write})


@pytest.fixture
async def client(service: Service) -> AsyncIterator[Client]:
    async with Client(build_server(service, host_files=True)) as client:
        yield client


async def test_long_output_is_whole_in_the_text_only_and_the_rest_is_named_in_both_halves(client: Client) -> None:
    result = await call(client, "execute_code", code=f"write {json.dumps(LINE)} 700", language="script")
    value = result.structured_content
    assert value is not None
    whole = LINE * 700
    assert text(result).endswith(f"stdout:\n{whole.removesuffix(chr(10))}")
    kept = REPEATED // 2
    assert value["stdout_omitted_bytes"] == len(whole) - REPEATED
    assert (
        value["stdout"] == f"{whole[:kept]}\n[... {format_size(len(whole) - REPEATED)} left out ...]\n{whole[-kept:]}"
    )
    [artifact] = value["artifacts"]
    named = "get_artifacts returns parts of it, by offset and length"
    assert named in text(result) and any(named in note for note in value["notes"])
    part = {"session_id": value["session_id"], "names": [artifact["name"]], "offset": kept, "length": 64}
    assert (await answer(client, "get_artifacts", **part))["text"] == whole[kept : kept + 64]
    assert len(json.dumps(value)) < REPEATED + 2000


async def test_output_that_even_the_text_has_not_whole_is_counted_from_all_of_it(client: Client) -> None:
    result = await call(client, "execute_code", code=f"write {json.dumps(LINE)} 3000", language="script")
    value = result.structured_content
    assert value is not None
    assert f"note: {format_size(3000 * len(LINE) - SHOWN)} of stdout were left out" in text(result)
    assert value["stdout_omitted_bytes"] == 3000 * len(LINE) - REPEATED
    assert value["stdout"].count("left out") == 1


async def test_a_long_result_is_treated_alike(client: Client) -> None:
    report = json.dumps({"result": "r" * 9000})
    result = await call(client, "execute_code", code=f"report {report}", language="script")
    value = result.structured_content
    assert value is not None
    assert text(result).endswith("r" * 9000)
    assert len(value["result"]) < REPEATED + 50
    assert [artifact["name"] for artifact in value["artifacts"]] == ["run-1-result.txt"]


async def test_short_output_is_in_both_halves_and_nowhere_else(client: Client) -> None:
    short = LINE * (REPEATED // len(LINE))
    result = await call(
        client, "execute_code", code=f"write {json.dumps(LINE)} {len(short) // len(LINE)}", language="script"
    )
    value = result.structured_content
    assert value is not None
    assert (value["stdout"], value["artifacts"], value["notes"]) == (short, [], [])


async def test_a_progress_bar_is_its_last_state_in_answers_and_no_file(client: Client) -> None:
    bar = " 50%|##########          | 1000/2000 [00:10<00:10, 99.9it/s]"
    result = await call(client, "execute_code", code=f"write {json.dumps(chr(13) + bar)} 2000", language="script")
    value = result.structured_content
    assert value is not None
    assert (value["stdout"], value["artifacts"], value["notes"]) == (bar, [], [])
    assert text(result).splitlines()[1:] == ["stdout:", bar]


async def test_the_file_of_a_long_output_has_every_state_of_its_lines(client: Client) -> None:
    line = "old\rnew " + LINE
    result = await call(client, "execute_code", code=f"write {json.dumps(line)} 400", language="script")
    value = result.structured_content
    assert value is not None
    assert "old" not in text(result) and "new 0123" in text(result)
    [artifact] = value["artifacts"]
    assert artifact["size_bytes"] == len(line) * 400
    part = {"session_id": value["session_id"], "names": [artifact["name"]], "offset": 0, "length": len(line)}
    assert (await answer(client, "get_artifacts", **part))["text"] == line


async def test_a_run_that_goes_on_is_read_as_a_terminal_leaves_it(client: Client) -> None:
    code = f"write {json.dumps(chr(13) + 'at  5 %')} 1\nwrite {json.dumps(chr(13) + 'at 10 %')} 1\nsleep 1000"
    going = await answer(client, "execute_code", code=code, language="script", wait_seconds=1)
    assert (going["status"], going["stdout"]) == ("running", "at 10 %")


async def test_programs_get_the_output_as_it_was_written(service: Service) -> None:
    printed = "old\rnew\r\n"
    seen = []

    async def see(stream: str, part: str) -> None:
        seen.append(part)

    result = await run(service, f"write {json.dumps(printed)} 1500", on_output=see)
    assert result.stdout.text == "".join(seen) == printed * 1500
    assert result.artifacts == ()
