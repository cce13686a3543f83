"""The prompts that a client lists and fills in, over both protocols."""

from collections.abc import AsyncIterator, Mapping

import anyio
import pytest
from mcp import Client, MCPError
from mcp.types import TextContent

from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.server import build_server
from tests.mcp.fake import FakeService

pytestmark = pytest.mark.anyio

REQUIRED = {"analyse_a_file": "file", "plot": "what", "check_a_claim": "claim"}


@pytest.fixture
async def prompts(era: str) -> AsyncIterator[Client]:
    """A client of a server whose prompts are under test."""
    with anyio.fail_after(30):
        async with Client(build_server(FakeService().service(), host_files=True), mode=era) as client:
            yield client


async def text(client: Client, name: str, arguments: Mapping[str, str]) -> str:
    """What a user's client sends to the model."""
    [message] = (await client.get_prompt(name, dict(arguments))).messages
    assert message.role == "user"
    assert isinstance(message.content, TextContent)
    return message.content.text


async def test_three_tasks_are_listed_with_what_they_need(prompts: Client) -> None:
    listed = (await prompts.list_prompts()).prompts
    assert {prompt.name: [a.name for a in prompt.arguments or () if a.required] for prompt in listed} == {
        name: [key] for name, key in REQUIRED.items()
    }
    assert all(prompt.title and prompt.description for prompt in listed)


@pytest.mark.parametrize("name", REQUIRED)
async def test_a_prompt_contains_what_the_user_gave_as_it_is(prompts: Client, name: str) -> None:
    given = "{braces}, 100 %, é\nand a second line"
    assert given in await text(prompts, name, {REQUIRED[name]: given})


async def test_what_the_user_left_out_has_a_default(prompts: Client) -> None:
    assert "what stands out?" in await text(prompts, "analyse_a_file", {"file": "a.csv", "question": " "})
    asked = await text(prompts, "analyse_a_file", {"file": "a.csv", "question": "How many rows?"})
    assert "Then answer: How many rows?" in asked
    assert "stands out" not in asked


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("draw", {}, "unknown prompt 'draw'; available: analyse_a_file, plot, check_a_claim"),
        ("plot", {}, "what: missing; give what the figure should show"),
        ("plot", {"what": "\n"}, "what: missing; give what the figure should show"),
        ("plot", {"what": "sales", "colour": "red"}, "'colour' is no argument of plot; it has what, data"),
    ],
)
async def test_a_mistake_is_refused_with_the_next_step(
    prompts: Client, name: str, arguments: Mapping[str, str], reason: str
) -> None:
    with pytest.raises(MCPError) as caught:
        await prompts.get_prompt(name, dict(arguments))
    assert (caught.value.error.code, caught.value.error.message) == (-32602, reason)


async def test_a_prompt_says_what_this_server_opened(era: str) -> None:
    opened = load_profile(
        over={"files": {"folders": ["/srv/data"]}, "network": {"mode": "allow", "domains": ["a.example"]}}
    )
    for host_files, brought in (
        (True, "at /data/data (/srv/data). Any other file"),
        (False, "by copy_file, with content"),
    ):
        server = build_server(FakeService(profile=opened).service(), host_files=host_files)
        with anyio.fail_after(30):
            async with Client(server, mode=era) as client:
                assert brought in await text(client, "analyse_a_file", {"file": "a.csv"})
                assert "can reach only a.example" in await text(client, "check_a_claim", {"claim": "1 = 1"})
