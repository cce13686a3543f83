"""A language is a folder: the language in `docs/pages/another-language.md` is added to a server by naming its folder."""

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from mcp import Client
from mcp.types import TextResourceContents

from llm_sandbox_mcp.backends.layout import PATH
from llm_sandbox_mcp.profile.profile import Profile, load_profile
from llm_sandbox_mcp.server import build_server
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service

from ..documents import DOCUMENTS
from ..mcp.results import answer

PAGE = DOCUMENTS["docs/pages/another-language.md"]

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("embedded")]


def shown(file: str) -> str:
    """A file that the page shows completely."""
    match = re.search(rf"`perl/{re.escape(file)}`:\n\n```\w+\n(.*?)```\n", PAGE, re.DOTALL)
    assert match is not None
    return match[1]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    perl = shutil.which("perl", path=PATH)
    if perl is None or subprocess.run([perl, "-MJSON::PP", "-e", "1"], capture_output=True, timeout=30).returncode:
        pytest.skip("needs perl with its core modules: apt-get install perl")
    folder = tmp_path_factory.mktemp("languages")
    (folder / "perl").mkdir()
    for name in ("handler.toml", "runner.pl"):
        (folder / "perl" / name).write_text(shown(name))
    return folder


@pytest.fixture
def profile(folders: Path, tmp_path: Path) -> Profile:
    path = tmp_path / "profile.toml"
    path.write_text(f"[handlers]\nfolders = ['{folders}']\n")
    return load_profile(str(path))


@pytest.fixture
async def service(profile: Profile) -> AsyncIterator[Service]:
    with anyio.fail_after(60):
        async with open_service(profile) as opened:
            yield opened


async def test_a_model_is_offered_the_language_with_the_others(service: Service) -> None:
    async with Client(build_server(service, host_files=True)) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        offered = tools["execute_code"].input_schema["properties"]["language"]["enum"]
        assert {"perl", "python", "bash"} <= set(offered)
        [contents] = (await client.read_resource("sandbox://languages/perl")).contents
        assert isinstance(contents, TextResourceContents)
        assert json.loads(contents.text)["version"].startswith("v5.")
        ran = await answer(client, "execute_code", code="print 6 * 7", language="pl")
        assert ran["stdout"] == "42"


async def test_state_is_kept_and_the_last_value_is_the_result(service: Service) -> None:
    first = await execute(service, "$x = 20; print 'é'; 'ü'", language="perl", variables={"y": 22})
    second = await execute(service, "$x + $y", language="perl", session_id=first.session_id)
    assert (first.stdout.text, first.result) == ("é", "ü")
    assert (second.result, second.session_state) == ("42", "kept")


async def test_an_error_names_the_line_of_the_code_and_keeps_the_state(service: Service) -> None:
    failed = await execute(service, "$x = 1;\n\ndie 'no'", language="perl")
    assert (failed.status, failed.exit_code, failed.session_state) == ("error", 1, "kept")
    assert failed.stderr.text == "no at cell 1 line 3.\n"
    assert (await execute(service, "$x", language="perl", session_id=failed.session_id)).result == "1"


async def test_the_exit_code_is_that_of_the_code(service: Service) -> None:
    ended = await execute(service, "exit 3", language="perl")
    assert (ended.status, ended.exit_code, ended.session_state) == ("error", 3, "kept")


async def test_a_timeout_stops_the_code_and_keeps_the_state(service: Service) -> None:
    ended = await execute(service, "$x = 5; 1 while 1", language="perl", timeout=0.5)
    assert (ended.status, ended.session_state) == ("timeout", "kept")
    assert (await execute(service, "$x", language="perl", session_id=ended.session_id)).result == "5"


async def test_files_and_figures_are_artifacts(service: Service) -> None:
    code = (
        "mkdir 'a'; for ('a/b.csv', '.hidden', \"$ENV{SANDBOX_FIGURES}/f.svg\") { open(my $f, '>', $_); print $f 'x' }"
    )
    ran = await execute(service, code, language="perl")
    assert {artifact.name for artifact in ran.artifacts} == {"a/b.csv", "f.svg"}
    assert (await execute(service, "1", language="perl", session_id=ran.session_id)).artifacts == ()


async def test_input_is_empty_and_a_long_result_is_cut(service: Service) -> None:
    ran = await execute(service, "print scalar(<STDIN>) // 'empty'; 'x' x 30000", language="perl")
    assert ran.stdout.text == "empty"
    assert ran.result == "x" * 20000


async def test_code_reads_the_text_that_the_call_gives_it(service: Service) -> None:
    given = await execute(service, "$| = 1; print scalar <STDIN>; system 'cat'", language="perl", stdin="é\ntwo")
    assert given.stdout.text == "é\ntwo"
    after = await execute(service, "print defined(<STDIN>) ? 1 : 0", language="perl", session_id=given.session_id)
    assert after.stdout.text == "0"


async def test_both_examples_run(service: Service) -> None:
    for example in tomllib.loads(shown("handler.toml"))["examples"]:
        ran = await execute(service, example["code"], language="perl")
        assert ran.status == "ok", ran.stderr


async def test_libraries_are_refused_if_the_folder_does_not_define_them(service: Service) -> None:
    async with Client(build_server(service, host_files=True)) as client:
        result = await client.call_tool("install_libraries", {"libraries": ["x"], "language": "perl"})
    assert result.is_error
