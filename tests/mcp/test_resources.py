"""Resources that clients read, complete and subscribe to, over both protocols."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import anyio
import pytest
from mcp import Client, MCPError
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import ResourceUpdated
from mcp.types import (
    ResourceTemplateReference,
    ResourceUpdatedNotification,
    TextResourceContents,
)

from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.server import build_server
from llm_sandbox_mcp.wiring import open_service

from .fake import FakeService
from .results import answer

pytestmark = [pytest.mark.anyio, pytest.mark.one_protocol]

ARTIFACT = ResourceTemplateReference(uri="sandbox://sessions/{session_id}/artifacts/{+path}")
LANGUAGE = ResourceTemplateReference(uri="sandbox://languages/{language}")
WRITE = "open('a b.txt', 'w').write('text')"


@pytest.fixture(autouse=True)
async def _bounded() -> AsyncIterator[None]:
    with anyio.fail_after(30):
        yield


@contextmanager
def refused(reason: str) -> Iterator[None]:
    with pytest.raises(MCPError, match=reason) as caught:
        yield
    assert caught.value.error.code == -32602
    assert "uri" in caught.value.error.data
    assert "\n" not in caught.value.error.message


async def read(client: Client, uri: str) -> str:
    [contents] = (await client.read_resource(uri)).contents
    assert isinstance(contents, TextResourceContents)
    return contents.text


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_server_announces_news_of_resources_and_that_none_of_its_lists_changes(mode: str) -> None:
    async with (
        open_service(load_profile()) as service,
        Client(build_server(service, host_files=True), mode=mode) as client,
    ):
        said = client.server_capabilities
    assert said.resources and said.resources.subscribe and not said.resources.list_changed
    assert said.tools and not said.tools.list_changed
    assert said.prompts and not said.prompts.list_changed


async def test_lists_name_no_session(client: Client) -> None:
    session_id = (await answer(client, "execute_code", code=WRITE))["session_id"]
    listed = await client.list_resources()
    templates = await client.list_resource_templates()
    assert [resource.uri for resource in listed.resources] == [
        "sandbox://languages",
        "sandbox://profile",
        "sandbox://pool",
    ]
    assert {template.uri_template for template in templates.resource_templates} == {ARTIFACT.uri, LANGUAGE.uri}
    assert session_id not in listed.model_dump_json() + templates.model_dump_json()


async def test_languages_are_described_one_by_one_and_by_alias(client: Client) -> None:
    languages = json.loads(await read(client, "sandbox://languages"))
    assert {"python", "javascript", "bash"} <= {language["name"] for language in languages}
    for language in languages:
        assert json.loads(await read(client, language["uri"]))["name"] == language["name"]
    with refused("cobol"):
        await client.read_resource("sandbox://languages/cobol")


async def test_a_language_tells_which_saved_session_its_sessions_start_from(client: Client) -> None:
    assert "starts_from" not in json.loads(await read(client, "sandbox://languages/bash"))
    profile = load_profile(over={"languages": {"bash": {"start": "geo"}}})
    async with open_service(profile) as service, Client(build_server(service, host_files=True)) as other:
        assert json.loads(await read(other, "sandbox://languages/bash"))["starts_from"] == "geo"
        assert "starts_from" not in json.loads(await read(other, "sandbox://languages/ruby"))


async def test_the_profile_is_shown_without_paths_and_indexes(client: Client) -> None:
    shown = await read(client, "sandbox://profile")
    assert json.loads(shown)["limits"]["timeout"] == 300
    assert "index" not in shown
    assert "bwrap" not in shown


async def test_the_profile_shows_how_much_of_its_limits_is_used(client: Client) -> None:
    async def used() -> object:
        return json.loads(await read(client, "sandbox://profile"))["used"]

    assert await used() == {"sessions": 0, "artifacts": 0, "artifact_bytes": 0}
    opened = await answer(client, "execute_code", code=WRITE)
    assert await used() == {"sessions": 1, "artifacts": 1, "artifact_bytes": len("text")}
    await answer(client, "manage_session", action="close", session_id=opened["session_id"])
    assert await used() == {"sessions": 0, "artifacts": 1, "artifact_bytes": len("text")}


async def test_the_pool_reports_what_is_in_use_and_hits_and_misses(client: Client) -> None:
    before = json.loads(await read(client, "sandbox://pool"))
    assert (before["leased"], before["hits"], before["misses"], before["acquire_ms"]) == (0, 0, 0, None)
    await answer(client, "execute_code", code="1")
    after = json.loads(await read(client, "sandbox://pool"))
    assert (after["leased"], after["misses"], after["opened"], after["failed"], after["waiting"]) == (1, 1, 1, 0, 0)
    [python] = after["keys"]
    assert (python["language"], python["image"], python["leased"], python["warm"]) == ("python", "", 1, 0)
    assert after["acquire_ms"] > 0
    assert after["max"] == 32


async def test_an_artifact_is_read_at_the_uri_that_its_run_returned(client: Client) -> None:
    [artifact] = (await answer(client, "execute_code", code=WRITE))["artifacts"]
    assert await read(client, artifact["uri"]) == "text"
    with refused("artifact"):
        await client.read_resource(artifact["uri"] + "x")


@pytest.mark.parametrize("uri", ["sandbox://nothing", "file:///etc/passwd", "sandbox://sessions/x/artifacts/../a"])
async def test_other_uris_are_refused(client: Client, uri: str) -> None:
    with refused("sandbox://languages|session"):
        await client.read_resource(uri)


async def test_completion_offers_languages_and_the_paths_of_a_known_session_only(client: Client) -> None:
    session_id = (await answer(client, "execute_code", code=WRITE))["session_id"]

    async def complete(ref: ResourceTemplateReference, name: str, value: str, session_id: str = "") -> list[str]:
        context = {"session_id": session_id} if session_id else None
        result = await client.complete(ref, {"name": name, "value": value}, context)
        return result.completion.values

    assert await complete(LANGUAGE, "language", "py") == ["python"]
    assert await complete(ARTIFACT, "path", "", session_id) == ["a b.txt"]
    assert await complete(ARTIFACT, "path", "", "0" * 32) == []
    assert await complete(ARTIFACT, "path", "") == []
    assert await complete(ARTIFACT, "session_id", "") == []


@pytest.mark.filterwarnings("ignore:resources/")
async def test_a_2025_client_is_notified_of_changed_artifacts_it_subscribed_to() -> None:
    send, received = anyio.create_memory_object_stream[IncomingMessage](8)

    async def receive(message: IncomingMessage) -> None:
        await send.send(message)

    async with (
        open_service(load_profile()) as service,
        Client(build_server(service, host_files=True), mode="legacy", message_handler=receive) as client,
        send,
        received,
    ):
        opened = await answer(client, "execute_code", code=WRITE)
        uri = opened["artifacts"][0]["uri"]
        await client.subscribe_resource(uri)
        for _ in range(2):
            await answer(client, "execute_code", code=WRITE + "\nopen('c', 'w')", session_id=opened["session_id"])
            news = await received.receive()
            assert isinstance(news, ResourceUpdatedNotification) and news.params.uri == uri
        await client.unsubscribe_resource(uri)
        await answer(client, "execute_code", code=WRITE + "\nopen('c', 'w')", session_id=opened["session_id"])
        # Artifacts are in no list, so no list changed either.
        assert received.statistics().current_buffer_used == 0


@pytest.mark.filterwarnings("ignore:resources/")
async def test_a_2025_client_can_subscribe_to_at_most_a_thousand_resources() -> None:
    async with Client(build_server(FakeService().service(), host_files=True), mode="legacy") as client:
        for number in range(1000):
            await client.subscribe_resource(f"sandbox://{number}")
        await client.subscribe_resource("sandbox://0")
        with pytest.raises(MCPError, match="1000 subscriptions are the limit; unsubscribe from a resource first"):
            await client.subscribe_resource("sandbox://one-more")
        await client.unsubscribe_resource("sandbox://0")
        await client.subscribe_resource("sandbox://one-more")


async def test_a_client_is_notified_of_artifacts_that_were_cleared() -> None:
    async with (
        open_service(load_profile()) as service,
        Client(build_server(service, host_files=True), mode="2026-07-28") as client,
    ):
        opened = await answer(client, "execute_code", code=WRITE)
        uri = opened["artifacts"][0]["uri"]
        async with client.listen(resources_list_changed=True, resource_subscriptions=[uri]) as events:
            await answer(client, "manage_session", action="clear", session_id=opened["session_id"])
            assert await anext(events) == ResourceUpdated(uri)
        with refused("artifact"):
            await client.read_resource(uri)


async def test_a_2026_client_is_notified_of_changed_artifacts_it_listens_for() -> None:
    async with (
        open_service(load_profile()) as service,
        Client(build_server(service, host_files=True), mode="2026-07-28") as client,
    ):
        opened = await answer(client, "execute_code", code=WRITE)
        uri = opened["artifacts"][0]["uri"]
        async with client.listen(resources_list_changed=True, resource_subscriptions=[uri]) as events:
            for _ in range(2):
                await answer(client, "execute_code", code=WRITE + "; 1", session_id=opened["session_id"])
                # The second time, news of a list would come first.
                assert await anext(events) == ResourceUpdated(uri)
