"""Everyday tasks, as a model does them that knows nothing but the tool list and the answers: no call is refused."""

import re
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult, ImageContent

from tests.cli.command import environment
from tests.engines import host_folder, need
from tests.local_index import local_index, wheel

from .results import text

pytestmark = [pytest.mark.anyio, pytest.mark.one_protocol]

TABLE = "island,mass\nBiscoe,5000\nDream,3700\nDream,3800\n"


@dataclass(frozen=True, slots=True)
class Model:
    """Calls tools, each of which must succeed, and keeps to one session."""

    client: Client
    descriptions: dict[str, str]
    """What it read about each tool and each argument, such as `copy_file.host_path`."""
    home: Path
    """The folders of its user."""

    async def call(self, tool: str, **arguments: Any) -> tuple[dict[str, Any], CallToolResult]:
        """The structured answer, and all of the result."""
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, text(result)
        assert result.structured_content is not None
        return result.structured_content, result

    async def run(self, code: str, **more: Any) -> dict[str, Any]:
        """The answer to a run, however it ended."""
        return (await self.call("execute_code", code=code, **more))[0]

    def told(self, what: str, pattern: str) -> str:
        """What a description says."""
        return found(pattern, self.descriptions[what])


def found(pattern: str, said: str | Sequence[str]) -> str:
    """The group of a pattern in what an answer or a description says."""
    match = re.search(pattern, said if isinstance(said, str) else "\n".join(said))
    assert match is not None, said
    return match[1]


@pytest.fixture(autouse=True)
async def _bounded() -> AsyncIterator[None]:
    with anyio.fail_after(110):
        yield


@pytest.fixture(scope="module")
async def connected(anyio_backend: str, era: str) -> AsyncIterator[Model]:
    """One server for all tasks of a protocol."""
    await need("embedded")
    with host_folder() as home, local_index() as index:
        for name in ("data", "out"):
            (home / name).mkdir()
        (home / "data/birds.csv").write_text(TABLE)
        index.add_project("opencv-python-headless", wheel("opencv_python_headless", module="cv2"), index)
        profile = home / "own.toml"
        profile.write_text(f'[server]\nruntime = "{home}/runtime"\n[languages.python]\nindex = "{index.url}/simple"\n')
        folders = ["--folder", f"{home}/data", "--folder", f"{home}/out:rw"]
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "llm_sandbox_mcp", "serve", "--profile", str(profile), *folders],
            env=environment(),
        )
        async with Client(server, mode=era) as client:
            told = {}
            for tool in (await client.list_tools()).tools:
                told[tool.name] = tool.description or ""
                for name, schema in tool.input_schema["properties"].items():
                    told[f"{tool.name}.{name}"] = schema.get("description", "")
            yield Model(client, told, home)


@pytest.fixture
async def model(connected: Model) -> AsyncIterator[Model]:
    """A model for one task; no session of it is left for the next."""
    yield connected
    listed, _ = await connected.call("manage_session", action="list")
    for session in listed["sessions"]:
        await connected.call("manage_session", action="close", session_id=session["session_id"])


async def test_the_users_table_is_read_and_a_figure_is_put_into_their_folder(model: Model) -> None:
    data = model.told("copy_file.host_path", r"below (\S+),")
    out = model.told("get_artifacts.save_to", r", (\S+) or below")
    session_id = (await model.run("1"))["session_id"]
    await model.call("copy_file", session_id=session_id, path="birds.csv", host_path=f"{data}/birds.csv")
    drawn, result = await model.call(
        "execute_code",
        session_id=session_id,
        code="import pandas as pd, matplotlib.pyplot as plt\nbirds = pd.read_csv('birds.csv')\n"
        "birds.groupby('island').mass.mean().plot.bar()\nplt.savefig('mass.png')\nplt.show()\nlen(birds)",
    )
    assert drawn["result"] == "3"
    assert len([part for part in result.content if isinstance(part, ImageContent)]) == 1
    name = drawn["artifacts"][0]["name"]
    saved, _ = await model.call("get_artifacts", session_id=session_id, names=[name], save_to=out)
    assert Path(saved["saved"][0]).read_bytes().startswith(b"\x89PNG")
    assert Path(saved["saved"][0]).parent == model.home / "out"


async def test_a_run_that_takes_longer_than_the_call_is_waited_for(model: Model) -> None:
    code = "import time\nprint('begun', flush=True)\ntime.sleep(0.5)\n'done'"
    answer = await model.run(code, wait_seconds=0)
    assert answer["status"] == "running"
    waited, _ = await model.call("manage_session", action="wait", run_id=answer["run_id"])
    assert (waited["run"]["status"], waited["run"]["result"]) == ("ok", "'done'")


async def test_a_run_whose_answer_was_lost_is_found_again(model: Model) -> None:
    await model.run("import time\ntime.sleep(0.5)\n'kept'", wait_seconds=0)
    listed, _ = await model.call("manage_session", action="list")
    (session,) = [one for one in listed["sessions"] if one["run_ids"]]
    waited, _ = await model.call("manage_session", action="wait", run_id=session["run_ids"][0])
    assert waited["run"]["result"] == "'kept'"


async def test_five_megabytes_of_output_are_read_to_the_end(model: Model) -> None:
    answer = await model.run("for n in range(500_000): print(f'{n:09d}')")
    name = found(r"is in the file (\S+) of the working directory", answer["notes"])
    size = next(artifact["size_bytes"] for artifact in answer["artifacts"] if artifact["name"] == name)
    last = await model.run(f"open('{name}').read().split()[-1]", session_id=answer["session_id"])
    assert last["result"] == "'000499999'"
    offset, read = size - 100_000, ""
    while offset:
        part, _ = await model.call(
            "get_artifacts", session_id=answer["session_id"], names=[name], offset=offset, length=30_000
        )
        read, offset = read + part["text"], part["next_offset"]
    assert read.endswith("000499999\n")


@pytest.mark.parametrize("language", ["python", "bash"])
async def test_a_library_that_is_missing_is_installed_under_the_name_of_the_hint(model: Model, language: str) -> None:
    code = {"python": "import cv2\ncv2.__name__", "bash": "python -c 'import cv2; print(cv2.__name__)'"}[language]
    answer = await model.run(code, language=language)
    assert answer["status"] == "error"
    library = found(r"call install_libraries with (\S+), language python and this session_id", answer["notes"])
    await model.call("install_libraries", libraries=[library], session_id=answer["session_id"])
    again = await model.run(code, language=language, session_id=answer["session_id"])
    assert "cv2" in again["result"] + again["stdout"]


@pytest.mark.parametrize(
    ("code", "language"),
    [("!pip install opencv-python-headless", "python"), ("pip install opencv-python-headless", "bash")],
)
async def test_pip_install_says_what_to_call_instead(model: Model, code: str, language: str) -> None:
    answer = await model.run(code, language=language)
    library = found(r"call install_libraries with (\S+), language python and this session_id", answer["notes"])
    installed, _ = await model.call("install_libraries", libraries=[library], session_id=answer["session_id"])
    assert library in [one["name"] for one in installed["libraries"]]


async def test_lines_that_set_up_a_notebook_do_no_harm(model: Model) -> None:
    answer = await model.run("%matplotlib inline\nimport numpy as np\nint(np.arange(4).sum())")
    assert (answer["status"], answer["result"]) == ("ok", "6")


async def test_code_that_reads_gets_its_input(model: Model) -> None:
    code = "name = input('Name? ')\nname.upper()"
    answer = await model.run(code)
    assert "stdin" in found(r"(give the text that the code reads in stdin)", answer["notes"])
    again = await model.run(code, stdin="ada\n", session_id=answer["session_id"])
    assert again["result"] == "'ADA'"


async def test_an_excel_table_is_written_and_read(model: Model) -> None:
    answer = await model.run(
        "import pandas as pd\npd.DataFrame({'a': [1, 2]}).to_excel('t.xlsx', index=False)\n"
        "int(pd.read_excel('t.xlsx').a.sum())"
    )
    assert answer["result"] == "3"
    assert [artifact["name"] for artifact in answer["artifacts"]] == ["t.xlsx"]


async def test_a_call_out_says_that_there_is_no_network(model: Model) -> None:
    assert "no network" in model.descriptions["execute_code"]
    answer = await model.run("import urllib.request\nurllib.request.urlopen('http://example.com')")
    found(r"(code here has no network; copy_file brings data in)", answer["notes"])


async def test_variables_last_in_one_session_and_are_reset_on_request(model: Model) -> None:
    session_id = (await model.run("x = 41"))["session_id"]
    assert (await model.run("x + 1", session_id=session_id))["result"] == "42"
    await model.call("manage_session", action="reset", session_id=session_id)
    assert "NameError" in (await model.run("x", session_id=session_id))["stderr"]
