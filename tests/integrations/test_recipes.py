"""Runs each recipe of configs/integrations with its real framework, and checks what the model is shown."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from llm_sandbox_mcp.host.folders import HANDLERS

from ..cli.command import ROOT, environment, script
from ..engines import host_folder, need
from ..environments import python_with

FOLDER = ROOT / "configs" / "integrations"

RECIPES = {
    "langchain_tool": "langchain",
    "langgraph_graph": "langchain",
    "llama_index_tool": "llama_index",
    "openai_function": "openai",
    "openai_chat": "openai",
    "openai_agent": "openai_agents",
    "pydantic_ai_agent": "pydantic_ai",
}
"""The model in `models/` with which each recipe is run."""

SHARED = "sandbox_tool"

TEXT_ALONE = ("openai_chat",)
"""Recipes whose protocol has no images in the results of tools."""

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
"""One black pixel."""

CALLS = {
    "assigns": "x = 41",
    "uses it": "x + 1",
    "fails": "1 / 0",
    "draws": f"import base64; n = open('dot.png', 'wb').write(base64.b64decode('{PNG}'))",
    "is too long": "#" * 3000,
    "has an unknown language": "x",
    "uses it again": "x + 2",
}
"""The code that the model runs in the first conversation. In the second conversation it only reads `x`."""

PROFILE = """
[limits]
code = "2KiB"

[server]
runtime = "{}"
"""

LIMIT = 300.0
"""Seconds after which a program counts as stuck; the first program on a machine prepares Python's libraries."""


@dataclass
class Conversations:
    """The report of a program on its two conversations."""

    recipe: str
    first: Mapping[str, Mapping[str, Any]]
    """The results, by the names of `CALLS`."""
    second: Mapping[str, Any]
    offered: Mapping[str, Any]
    said: list[str]


@pytest.fixture(scope="module")
def profile() -> Iterator[Path]:
    with host_folder() as folder:
        runtime = folder / "runtime"
        path = folder / "profile.toml"
        path.write_text(PROFILE.format(runtime))
        yield path
        assert not [*runtime.iterdir()]


@pytest.fixture(scope="module")
def commands(profile: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a `llm-sandbox-mcp` that uses the profile, because clients do not pass on the environment."""
    folder = tmp_path_factory.mktemp("bin")
    script(folder, profile)
    return folder


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter with the frameworks; if they cannot be installed, this is tried only once."""
    anyio.run(need, "embedded")
    return python_with("integrations", ours=True)


@pytest.fixture(scope="module", params=RECIPES)
def conversations(request: pytest.FixtureRequest, python: Path, profile: Path, commands: Path) -> Conversations:
    first = [{"code": code, "language": "python"} for code in CALLS.values()]
    first[[*CALLS].index("has an unknown language")]["language"] = "cobol"
    variables = environment(LLM_SANDBOX_PROFILE=str(profile), PYTHONPATH=f"{ROOT}:{FOLDER}")
    done = subprocess.run(
        [python, "-m", f"tests.integrations.models.{RECIPES[request.param]}", request.param],
        input=json.dumps([first, [{"code": "x", "language": "python"}]]),
        env=variables | {"PATH": f"{commands}:{variables['PATH']}"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    one, two = json.loads(done.stdout)
    (second,) = two["results"]
    named = dict(zip(CALLS, one["results"], strict=True))
    return Conversations(request.param, named, second, one["offered"], [one["said"], two["said"]])


def test_every_recipe_is_run() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == {*RECIPES, SHARED}
    page = (FOLDER / "README.md").read_text()
    assert [name for name in (*RECIPES, SHARED) if f"`{name}.py`" not in page] == []


def test_the_model_is_offered_the_tool_and_its_languages(conversations: Conversations) -> None:
    offered = conversations.offered
    assert offered["name"] == "execute_code"
    assert offered["description"].startswith("Runs code in an isolated sandbox")
    assert {"code", "language"} <= {*offered["parameters"]["properties"]}
    languages = {path.parent.name for path in HANDLERS.glob("*/handler.toml")}
    assert {*offered["parameters"]["properties"]["language"]["enum"]} == languages


def test_variables_are_kept_from_call_to_call(conversations: Conversations) -> None:
    assert "42" in conversations.first["uses it"]["text"]


def test_an_error_of_the_code_is_shown_to_the_model(conversations: Conversations) -> None:
    assert "ZeroDivisionError: division by zero" in conversations.first["fails"]["text"]


def test_a_figure_is_shown_to_the_model(conversations: Conversations) -> None:
    shown = {name: result["images"] for name, result in conversations.first.items() if result["images"]}
    assert shown == ({} if conversations.recipe in TEXT_ALONE else {"draws": [f"data:image/png;base64,{PNG}"]})
    assert "dot.png" in conversations.first["draws"]["text"]


def test_a_refusal_of_the_sandbox_is_shown_to_the_model_which_can_continue(conversations: Conversations) -> None:
    first = conversations.first
    assert "code has 3000 bytes; the limit is 2048" in first["is too long"]["text"]
    assert "cobol" in first["has an unknown language"]["text"]
    assert "43" in first["uses it again"]["text"]
    assert conversations.said == ["That is all."] * 2


def test_the_next_conversation_has_its_own_sandbox(conversations: Conversations) -> None:
    assert "NameError: name 'x' is not defined" in conversations.second["text"]
