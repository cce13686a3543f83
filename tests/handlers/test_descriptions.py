"""The description of each language for models; the examples in it run without changes."""

import json
import os
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.types import TextResourceContents

from llm_sandbox_mcp.backends.layout import PATH
from llm_sandbox_mcp.host.folders import HANDLERS
from llm_sandbox_mcp.languages.languages import load_languages
from llm_sandbox_mcp.libraries.listing import read_list
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.server import build_server
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.wiring import open_service
from tests.engines import need
from tests.growth import kept

from ..mcp.results import answer

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("embedded")]

LANGUAGES = load_languages()


@pytest.fixture(autouse=True)
async def _bounded() -> AsyncIterator[None]:
    with anyio.fail_after(120):
        yield


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def server(anyio_backend: str) -> AsyncIterator[tuple[Service, Client]]:
    """A server that all tests share, and its client: the server asks each language for its version once."""
    await need("embedded")
    async with open_service(load_profile()) as service, Client(build_server(service, host_files=True)) as client:
        await service.warm()
        for language in LANGUAGES:
            await describe(client, language)
        with kept("embedded"):
            yield service, client


@pytest.fixture
async def client(server: tuple[Service, Client]) -> AsyncIterator[Client]:
    service, client = server
    yield client
    for session in service.sessions.list():
        await service.sessions.close(session.id)
    await service.pool_until(lambda now: not now.closing)


@pytest.fixture(params=LANGUAGES)
def language(request: pytest.FixtureRequest) -> str:
    """Each language whose programs are installed on this machine."""
    name = str(request.param)
    need_programs(name)
    return name


def need_programs(language: str) -> None:
    """Skips a language whose toolchain is missing; the others still run. `.ci/run` has all toolchains."""
    missing = [found for found in LANGUAGES[language].handler.requires.commands if not shutil.which(found, path=PATH)]
    if missing:
        pytest.skip(f"{language} needs {', '.join(missing)}")


async def describe(client: Client, language: str) -> dict[str, Any]:
    [contents] = (await client.read_resource(f"sandbox://languages/{language}")).contents
    assert isinstance(contents, TextResourceContents)
    described: dict[str, Any] = json.loads(contents.text)
    return described


async def test_both_examples_run_unchanged(client: Client, language: str) -> None:
    examples = (await describe(client, language))["examples"]
    assert len(examples) == 2
    session_id = ""
    for example in examples:
        ran = await answer(client, "execute_code", code=example["code"], language=language, session_id=session_id)
        assert (ran["status"], ran["session_state"]) == ("ok", "kept"), ran["stderr"]
        session_id = ran["session_id"]


async def test_the_version_is_that_of_the_installed_language(client: Client, language: str) -> None:
    described = await describe(client, language)
    assert re.search(r"[0-9]+\.[0-9]+", described["version"])
    assert "problem" not in described
    assert described["keeps_state"] is LANGUAGES[language].handler.stateful


async def test_the_libraries_of_python_are_those_of_its_environment(client: Client) -> None:
    libraries = {library["name"]: library["version"] for library in (await describe(client, "python"))["libraries"]}
    assert {"numpy", "pandas", "matplotlib"} <= libraries.keys()
    seen = await answer(client, "execute_code", code="import numpy\nnumpy.__version__")
    assert seen["result"] == repr(libraries["numpy"])


async def test_the_libraries_of_r_are_those_of_the_system(client: Client) -> None:
    need_programs("r")
    libraries = {library["name"]: library["version"] for library in (await describe(client, "r"))["libraries"]}
    assert "base" not in libraries
    code = "cat(rownames(installed.packages()))"
    seen = await answer(client, "execute_code", code=code, language="r")
    names = seen["stdout"].split()
    assert libraries.keys() <= set(names)
    for name in ("ggplot2", "plotly", "lattice"):
        assert (name in libraries) == (name in names)


async def test_the_libraries_of_ruby_are_the_installed_gems(client: Client) -> None:
    need_programs("ruby")
    libraries = {library["name"]: library["version"] for library in (await describe(client, "ruby"))["libraries"]}
    seen = await answer(client, "execute_code", code="require 'csv'\nCSV::VERSION", language="ruby")
    assert seen["result"] == f'"{libraries["csv"]}"'


async def test_the_libraries_of_javascript_are_those_that_npm_installed_for_all(client: Client) -> None:
    need_programs("javascript")
    libraries = {library["name"]: library["version"] for library in (await describe(client, "javascript"))["libraries"]}
    code = """
const folders = ['/usr/local/lib/node_modules', '/usr/lib/node_modules'].filter(fs.existsSync);
folders.flatMap((folder) => fs.readdirSync(folder)).filter((name) => !name.startsWith('@')).sort().join()
"""
    seen = await answer(client, "execute_code", code=f"const fs = require('fs');{code}", language="javascript")
    assert seen["result"] == f"'{','.join(sorted(name for name in libraries if not name.startswith('@')))}'"
    for name in libraries:
        package = f"'{name}/package.json'"
        code = f"[require({package}), (await import({package}, {{ with: {{ type: 'json' }} }})).default].map((p) => p.version)"
        seen = await answer(client, "execute_code", code=code, language="javascript", session_id=seen["session_id"])
        assert seen["result"] == f"[ '{libraries[name]}', '{libraries[name]}' ]"


@pytest.mark.parametrize(
    ("words", "packages"),
    [
        (("asked", "own"), ["mine"]),
        (("all", "own"), ["@scope/deep", "called-otherwise", "mine", "theirs"]),
        (("given",), ["@scope/one", "two"]),
    ],
)
async def test_packages_of_javascript_are_found_where_npm_installs_them(
    tmp_path: Path, words: tuple[str, ...], packages: list[str]
) -> None:
    need_programs("javascript")
    (tmp_path / "own").mkdir()
    (tmp_path / "own/package.json").write_text('{"dependencies": {"mine": "^1.0.0", "gone": "^1.0.0"}}')
    for folder, name in (
        ("own", "mine"),
        ("own", "theirs"),
        ("own/node_modules/mine", "@scope/deep"),
        ("all", "@scope/one"),
        ("all", "two"),
    ):
        place = tmp_path / folder / "node_modules" / name
        place.mkdir(parents=True)
        (place / "package.json").write_text(json.dumps({"name": name, "version": "1.2.3"}))
    modules = tmp_path / "own/node_modules"
    (modules / "theirs/package.json").write_text('{"name": "called-otherwise", "version": "1.2.3"}')
    (modules / "empty").mkdir()
    (modules / ".package-lock.json").write_text("{}")
    (modules / "theirs/node_modules").symlink_to(modules)  # code can make circles of links
    environment = {
        "NODE_PATH": ":".join(str(tmp_path / folder / "node_modules") for folder in ("own", "all", "nowhere")),
        "SANDBOX_LIBRARIES": str(tmp_path / "own"),
    }
    command = ["node", str(HANDLERS / "javascript/packages.js"), *words]
    listed = await anyio.run_process(command, env={**os.environ, **environment}, cwd=tmp_path)
    libraries = LANGUAGES["javascript"].handler.libraries
    assert libraries is not None
    found = read_list(listed.stdout, libraries.installed_pattern, 60)
    assert sorted(library.name for library in found) == packages
    assert {library.version for library in found} == {"1.2.3"}


async def test_the_description_has_the_facts_of_the_handler(client: Client, language: str) -> None:
    handler = LANGUAGES[language].handler
    facts = {
        "figures": list(handler.figures),
        "package_manager": handler.libraries.manager if handler.libraries else None,
        "keeps_state": handler.stateful,
        "file_extension": handler.extension,
    }
    assert facts.items() <= (await describe(client, language)).items()


def write(folder: Path, name: str, **changed: str) -> None:
    """Writes the handler of a language whose program is not installed."""
    keys = {"version": '["/usr/bin/no-such-program"]', **changed}
    (folder / name).mkdir(parents=True)
    (folder / name / "handler.toml").write_text(
        f'name = "{name}"\ntitle = "{name.title()}"\nextension = ".x"\nstateful = true\nversion_command = {keys["version"]}\n'
        '[runner]\nargv = ["true"]\n[requires]\ninstall = "apt-get install it"\n'
    )


@pytest.mark.parametrize("version", ['["/usr/bin/no-such-program"]', '["false"]'])
async def test_a_language_that_does_not_run_has_a_problem_and_the_others_run(tmp_path: Path, version: str) -> None:
    write(tmp_path, "absent", version=version)
    (tmp_path / "profile.toml").write_text(f"[handlers]\nfolders = ['{tmp_path}']\n")
    async with (
        open_service(load_profile(str(tmp_path / "profile.toml"))) as service,
        Client(build_server(service, host_files=True)) as client,
    ):
        described = await describe(client, "absent")
        assert "Absent does not run here" in described["problem"]
        assert "apt-get install it" in described["problem"]
        assert "problem" not in await describe(client, "bash")
        ran = await answer(client, "execute_code", code="echo hi", language="bash")
        assert ran["stdout"] == "hi\n"


async def test_a_language_that_is_not_prepared_yet_is_described_at_once(tmp_path: Path) -> None:
    (tmp_path / "profile.toml").write_text(
        f"[server]\ncache = '{tmp_path / 'cache'}'\n[languages.python]\nlibraries = ['numpy']\n"
    )
    async with (
        open_service(load_profile(str(tmp_path / "profile.toml"))) as service,
        Client(build_server(service, host_files=True)) as client,
    ):
        described = await describe(client, "python")
        assert [library["name"] for library in described["libraries"]] == ["numpy"]
        assert "prepared" in described["version"]
