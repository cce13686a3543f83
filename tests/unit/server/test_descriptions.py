"""What a model learns from the definitions of the tools, for different profiles."""

import json
from pathlib import Path

import pytest
from mcp.types import ListToolsResult, Tool

from llm_sandbox_mcp.languages.languages import included_languages
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.server.schemas import define_tools


class Profiles:
    """Defines the tools for the text of a profile."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "profile.toml"

    def tools(self, profile: str = "", *, host_files: bool = True) -> dict[str, Tool]:
        self._path.write_text(profile)
        return define_tools(load_profile(str(self._path)), included_languages(), host_files=host_files)

    def execution(self, profile: str = "") -> str:
        """The description of `execute_code`."""
        found = self.tools(profile)["execute_code"].description
        assert found is not None
        return found


@pytest.fixture
def profiles(tmp_path: Path) -> Profiles:
    return Profiles(tmp_path)


def test_a_model_reads_what_it_has_before_the_first_call(profiles: Profiles) -> None:
    for fact in (
        "session_id to keep variables and files",
        "cpp, go, java take whole programs and keep files only",
        "starts in /sandbox",
        "python has numpy, pandas, matplotlib",
        "at most 300 seconds and 2GiB of memory",
        "Code has no network",
    ):
        assert fact in profiles.execution()


def test_the_definitions_with_two_folders_are_short(profiles: Profiles) -> None:
    """Each model pays for them in each conversation; many hosts pass on all but the schemas of answers."""
    tools = profiles.tools("[files]\nfolders = ['/home/someone/data', '/home/someone/results:rw']\n")
    whole = ListToolsResult(tools=[*tools.values()]).model_dump(mode="json", by_alias=True, exclude_none=True)
    assert len(json.dumps(whole)) < 8000
    for tool in whole["tools"]:
        del tool["outputSchema"]
    assert len(json.dumps(whole)) < 5000


@pytest.mark.parametrize(
    ("network", "said"),
    [
        ("mode = 'open'", "Code has a network."),
        ("mode = 'allow'\ndomains = ['a.example', 'b.example:8443']", "only a.example, b.example:8443, through"),
        (f"mode = 'allow'\ndomains = {[f'{n}.example' for n in range(8)]}", "4.example and 3 more, through"),
    ],
)
def test_a_model_reads_what_code_can_reach(profiles: Profiles, network: str, said: str) -> None:
    assert said in profiles.execution(f"[network]\n{network}\n")


def test_libraries_and_limits_are_those_of_the_profile(profiles: Profiles) -> None:
    found = profiles.execution(
        "[languages.python]\nlibraries = ['polars']\n[limits]\ntimeout = '90s'\nmemory = '1GiB'\n"
    )
    assert "python has polars." in found
    assert "at most 90 seconds and 1GiB of memory" in found


def test_files_of_the_host_are_offered_only_if_the_operator_opened_folders(profiles: Profiles) -> None:
    opened = "[files]\nfolders = ['/srv/data']\n"
    assert "host_path" not in profiles.tools()["copy_file"].input_schema["properties"]
    assert "host_path" not in profiles.tools(opened, host_files=False)["copy_file"].input_schema["properties"]
    offered = profiles.tools(opened)["copy_file"].input_schema["properties"]["host_path"]
    assert offered["description"].endswith("below /srv/data; direction out: nowhere")
    assert "save_to" not in profiles.tools(opened)["get_artifacts"].input_schema["properties"]
