"""The tools and arguments that callers of LLM Sandbox's server know, and where this server offers them."""

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.types import TextResourceContents

from llm_sandbox_mcp.profile.profile import Profile, load_profile
from llm_sandbox_mcp.server import build_server
from llm_sandbox_mcp.wiring import open_service
from tests.engines import changed

from .fake import FakeService
from .results import answer, call, refusal, text

pytestmark = [pytest.mark.anyio, pytest.mark.one_protocol]

KEYS = {"version", "package_manager", "preinstalled_libraries", "use_cases", "visualization_support", "examples"}


@pytest.fixture(autouse=True)
async def _bounded() -> AsyncIterator[None]:
    with anyio.fail_after(60):
        yield


def with_old_names() -> Profile:
    profile = load_profile()
    return profile.model_copy(update={"tools": profile.tools.model_copy(update={"old_names": True})})


@pytest.fixture
def fake() -> FakeService:
    return FakeService(with_old_names())


@pytest.fixture
async def old(fake: FakeService, era: str) -> AsyncIterator[Client]:
    """A client of a server with the old names, on the fake service, which opens no sandboxes."""
    async with Client(build_server(fake.service(), host_files=True), mode=era) as client:
        yield client


@pytest.fixture
async def real(embedded: None, era: str) -> AsyncIterator[Client]:
    """The same on the real service."""
    async with (
        open_service(with_old_names()) as service,
        Client(build_server(service, host_files=True), mode=era) as client,
    ):
        yield client


def has_old_shape(details: dict[str, Any]) -> bool:
    """Whether the details of a language have the shape that callers expect."""
    return (
        details.keys() == KEYS
        and all(isinstance(details[key], str) for key in ("version", "package_manager"))
        and all(isinstance(name, str) for key in ("preinstalled_libraries", "use_cases") for name in details[key])
        and isinstance(details["visualization_support"], bool)
        and all(example.keys() == {"title", "description", "code"} for example in details["examples"])
        and bool(details["use_cases"] and details["examples"])
    )


async def test_the_old_tools_are_listed_after_our_own_which_stay_unchanged(old: Client, era: str) -> None:
    async with Client(build_server(FakeService().service(), host_files=True), mode=era) as plain:
        ours = (await plain.list_tools()).tools
    listed = (await old.list_tools()).tools
    assert listed[:5] == ours
    assert [tool.name for tool in listed[5:]] == ["get_supported_languages", "get_language_details"]
    for tool in listed[5:]:
        assert tool.title and tool.description and tool.annotations and tool.annotations.read_only_hint
        assert tool.input_schema["additionalProperties"] is False
    assert listed[6].input_schema["properties"]["language"]["enum"] == ["python", "bash"]


async def test_all_definitions_together_stay_near_8_kb(old: Client) -> None:
    assert len(json.dumps((await old.list_tools()).model_dump(mode="json", by_alias=True, exclude_none=True))) < 9000


async def test_languages_are_a_list_of_names(old: Client) -> None:
    result = await call(old, "get_supported_languages")
    assert (result.is_error, result.structured_content) == (False, None)
    assert json.loads(text(result)) == ["python", "bash"]
    assert "available: none" in await refusal(old, "get_supported_languages", language="python")


async def test_an_unknown_language_is_an_error_under_the_key_error_alone(old: Client) -> None:
    said = json.loads(await refusal(old, "get_language_details", language="cobol"))
    assert said == {"error": "unknown language 'cobol'; available: python, bash"}
    assert "language" in await refusal(old, "get_language_details")


async def test_a_call_with_the_old_arguments_runs(old: Client, fake: FakeService) -> None:
    given = await answer(old, "execute_code", code="1", language="python", libraries=["numpy"], timeout=7)
    assert {"exit_code", "stdout", "stderr"} <= given.keys()
    await answer(old, "execute_code", code="1", libraries=None)
    first, second = fake.asked
    assert (first["timeout"], first["libraries"]) == (7.0, ["numpy"])
    assert (second["timeout"], second["libraries"]) == (None, [])


async def test_a_timeout_is_checked_like_ours_and_both_together_are_refused(old: Client, fake: FakeService) -> None:
    assert "timeout_seconds must be above 0" in await refusal(old, "execute_code", code="1", timeout=0)
    assert "at most 300" in await refusal(old, "execute_code", code="1", timeout=301)
    assert "unknown argument 'timeout'" in await refusal(old, "execute_code", code="1", timeout=1, timeout_seconds=2)
    assert "unknown argument 'timeout'" in await refusal(old, "install_libraries", libraries=["numpy"], timeout=1)
    assert fake.asked == []


async def test_the_old_names_do_not_exist_unless_the_profile_sets_them(era: str) -> None:
    fake = FakeService()
    async with Client(build_server(fake.service(), host_files=True), mode=era) as client:
        for name in ("get_supported_languages", "get_language_details"):
            with pytest.raises(Exception, match="unknown tool"):
                await client.call_tool(name, {"language": "python"})
        assert "did you mean 'timeout_seconds'" in await refusal(client, "execute_code", code="1", timeout=1)
    assert fake.asked == []


async def test_details_come_from_the_language_itself(real: Client) -> None:
    result = await call(real, "get_language_details", language="py")
    details = json.loads(text(result))
    assert has_old_shape(details)
    assert details["version"].startswith("Python 3.") or "prepared" in details["version"]
    assert {"numpy", "pandas", "matplotlib"} <= {*details["preinstalled_libraries"]}
    assert details["visualization_support"]
    bash = json.loads(text(await call(real, "get_language_details", language="bash")))
    assert has_old_shape(bash)
    assert bash["version"].startswith("GNU bash")
    assert (bash["package_manager"], bash["preinstalled_libraries"], bash["visualization_support"]) == ("", [], False)


async def test_the_list_of_languages_is_an_object_of_details_by_name(real: Client) -> None:
    names = json.loads(text(await call(real, "get_supported_languages")))
    [contents] = (await real.read_resource("sandbox://languages")).contents
    assert isinstance(contents, TextResourceContents)
    details = json.loads(contents.text)
    assert [*details] == names
    for name, found in details.items():
        found.pop("problem", None)  # only if the language is not on this machine
        assert has_old_shape(found), name
    [python] = (await real.read_resource("sandbox://languages/python")).contents
    assert isinstance(python, TextResourceContents)
    assert json.loads(python.text)["name"] == "python"


async def test_the_details_of_a_language_that_does_not_run_here_contain_the_reason(era: str) -> None:
    profile = with_old_names()
    async with (
        open_service(changed(profile, embedded={"bwrap": "no-such-program"})) as service,
        Client(build_server(service, host_files=True), mode=era) as client,
    ):
        details = json.loads(text(await call(client, "get_language_details", language="bash")))
    assert details.keys() == {*KEYS, "problem"}
    assert "no-such-program" in details["problem"]
