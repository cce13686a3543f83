"""What describes the server to registries and hosts agrees with the command line and with pyproject.toml."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from llm_sandbox_mcp.cli.opening import named_profile
from llm_sandbox_mcp.cli.parser import parse
from llm_sandbox_mcp.profile.profile import load_profile

from .building import LIMIT, ROOT, outside, publish, run

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FOLDER = ROOT / "configs/publish"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    (file,) = publish("server", tmp_path_factory.mktemp("server"))
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return document


def test_the_entry_in_the_registry_has_the_names_and_the_version_of_the_package(server: dict[str, Any]) -> None:
    (package,) = server["packages"]
    assert (package["registryType"], package["runtimeHint"]) == ("pypi", "uvx")
    assert (package["identifier"], package["version"]) == (PROJECT["name"], PROJECT["version"])
    assert (server["description"], server["version"]) == (PROJECT["description"], PROJECT["version"])
    assert server["repository"] == {"url": PROJECT["urls"]["Source"], "source": "github"}


def test_the_entry_is_within_the_limits_of_the_registry(server: dict[str, Any]) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", server["name"])
    assert len(server["description"]) <= 100
    assert len(server["title"]) <= 100


def test_the_server_takes_the_arguments_and_the_variable_of_the_entry(server: dict[str, Any], tmp_path: Path) -> None:
    (package,) = server["packages"]
    given = [f"{argument['name']}={tmp_path}" for argument in package["packageArguments"]]
    options = parse([*given, *given])
    assert (options.module, options.folders) == ("serve", [str(tmp_path)] * 2)
    (variable,) = package["environmentVariables"]
    assert named_profile(options, {variable["name"]: "strict"}) == "strict"
    assert load_profile(variable["default"])


def test_each_setting_of_the_bundle_reaches_the_server() -> None:
    manifest = json.loads((FOLDER / "bundle/manifest.json").read_text(encoding="utf-8"))
    started = manifest["server"]["mcp_config"]
    used = re.findall(r"\$\{user_config\.(\w+)\}", json.dumps(started))
    assert sorted(used) == sorted(manifest["user_config"])
    assert load_profile(manifest["user_config"]["profile"]["default"]).backend.name == "auto"


@pytest.mark.parametrize("file", ["server.json", "bundle/manifest.json", "bundle/pyproject.toml"])
def test_no_template_repeats_what_the_project_knows(file: str) -> None:
    text = (FOLDER / file).read_text(encoding="utf-8")
    assert [known for known in (PROJECT["version"], PROJECT["description"]) if known in text] == []


@pytest.mark.only_in_all
@pytest.mark.timeout(LIMIT)
def test_the_entry_meets_the_schema_of_the_registry(tmp_path: Path) -> None:
    """Checked by a program that includes the schema, which the registry itself serves from an address of its own."""
    publish("server", tmp_path)
    linter = (find_uv_bin(), "tool", "run", "skillsaw@0.22.0", "lint", "--strict", tmp_path)
    assert "Repo type: mcp-registry" in run(*linter, cwd=tmp_path, **{**outside(), "TMPDIR": str(tmp_path)})


@pytest.mark.only_in_all
@pytest.mark.timeout(2 * LIMIT)
@pytest.mark.parametrize("system", ["x86_64-manylinux_2_28", "aarch64-manylinux_2_28", "aarch64-apple-darwin"])
@pytest.mark.parametrize("python", ["3.11", "3.14"])
def test_every_dependency_has_a_wheel(python: str, system: str, tmp_path: Path) -> None:
    wanted = ("--extra", "all", "--only-binary", ":all:", "--python-version", python, "--python-platform", system)
    resolving = (find_uv_bin(), "pip", "compile", "--no-header", *wanted, ROOT / "pyproject.toml")
    resolved = run(*resolving, cwd=tmp_path, **{**outside(), "TMPDIR": str(tmp_path)})
    assert "\nmcp==" in resolved and "\nkubernetes==" in resolved
