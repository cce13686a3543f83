"""What a model sees of the tools, and the errors it gets when it calls them wrongly. No test needs a sandbox."""

import dataclasses
import json
import logging
import random
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.server.context import ServerRequestContext
from mcp.types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextResourceContents,
)
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from llm_sandbox_mcp.base.errors import CapacityReached
from llm_sandbox_mcp.base.messages import Note
from llm_sandbox_mcp.base.principal import ANONYMOUS, TOKEN, USER
from llm_sandbox_mcp.base.results import Artifact, Execution, Installation, Library, Output, Overview
from llm_sandbox_mcp.host.folders import HANDLERS
from llm_sandbox_mcp.languages.languages import Handler, Language, Languages
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.server import build_server
from llm_sandbox_mcp.server.access import require_token
from llm_sandbox_mcp.server.audience import Audience, Peer
from llm_sandbox_mcp.server.bodies import Bodies
from llm_sandbox_mcp.server.schemas import (
    Arguments,
    CopyFile,
    ExecuteCode,
    GetArtifacts,
    InstallLibraries,
    ManageSession,
)
from llm_sandbox_mcp.server.uris import artifact_uri
from tests.mcp.fake import NOTHING_PRINTED, PNG, SESSION, FakeService
from tests.mcp.results import answer, call, refusal, text
from tests.mcp.wire import CLIENT, message
from tests.pictures import png

pytestmark = pytest.mark.anyio

HTTP = "http://127.0.0.1:8000/mcp"
ARGUMENTS: dict[str, type[Arguments]] = {
    "execute_code": ExecuteCode,
    "install_libraries": InstallLibraries,
    "copy_file": CopyFile,
    "get_artifacts": GetArtifacts,
    "manage_session": ManageSession,
}
TOOLS = [*ARGUMENTS]


@pytest.fixture(autouse=True)
async def _bounded() -> Any:
    with anyio.fail_after(30):
        yield


@pytest.fixture
def fake() -> FakeService:
    return FakeService()


def connect(fake: FakeService, era: str, *, host_files: bool = True) -> AbstractAsyncContextManager[Client]:
    return Client(build_server(fake.service(), host_files=host_files), mode=era)


def ran(*artifacts: Artifact, **changed: Any) -> Execution:
    return dataclasses.replace(NOTHING_PRINTED, artifacts=artifacts, **changed)


async def schemas(client: Client) -> dict[str, list[dict[str, Any]]]:
    return {tool.name: [tool.input_schema, tool.output_schema or {}] for tool in (await client.list_tools()).tools}


def nodes(schema: object) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
    if isinstance(schema, dict | list):
        for below in schema.values() if isinstance(schema, dict) else schema:
            yield from nodes(below)


ALL = ("python", "javascript", "java", "cpp", "go", "r", "ruby", "bash")
"""The languages that are included."""


async def test_all_definitions_together_stay_under_8_kb(fake: FakeService, era: str) -> None:
    given = [
        {"name": name, "title": name, "extension": ".x", "version_command": ["true"], "stateful": True} for name in ALL
    ]
    parsed = [Handler.model_validate({**fields, "runner": {"argv": ["true"]}}) for fields in given]
    fake.languages = Languages(Language(HANDLERS / handler.name, handler) for handler in parsed)
    async with connect(fake, era) as client:
        listed = await client.list_tools()
    assert [tool.name for tool in listed.tools] == TOOLS
    assert listed.tools[0].input_schema["properties"]["language"]["enum"] == [*ALL]
    assert len(json.dumps(listed.model_dump(mode="json", by_alias=True, exclude_none=True))) < 8000


async def test_schemas_are_flat(fake: FakeService, era: str) -> None:
    async with connect(fake, era) as client:
        for pair in (await schemas(client)).values():
            for node in nodes(pair):
                assert not {"$ref", "$defs", "anyOf", "oneOf", "allOf"} & node.keys()
                assert not isinstance(node.get("type"), list)


async def test_arguments_allow_no_other_keys_and_contain_every_default_that_is_not_empty(
    fake: FakeService, era: str
) -> None:
    async with connect(fake, era) as client:
        for tool, (arguments, _) in (await schemas(client)).items():
            assert arguments["additionalProperties"] is False
            for name, field in ARGUMENTS[tool].model_fields.items():
                if name in arguments["properties"]:
                    assert (name in arguments["required"]) == field.is_required()
                    default = None if field.is_required() else field.get_default()
                    assert ("default" in arguments["properties"][name]) == bool(default)


async def test_answers_have_exactly_the_keys_of_their_schemas(fake: FakeService, era: str) -> None:
    calls: dict[str, dict[str, Any]] = {
        "execute_code": {"code": "1"},
        "install_libraries": {"libraries": ["six"]},
        "copy_file": {"session_id": SESSION, "path": "a", "direction": "out"},
        "get_artifacts": {"session_id": SESSION},
        "manage_session": {"action": "list"},
    }
    fake.stored = {"a": b"text"}
    async with connect(fake, era) as client:
        for tool, (_, schema) in (await schemas(client)).items():
            found = await answer(client, tool, **calls[tool])
            assert found.keys() == schema["properties"].keys() == {*schema["required"]}


async def test_every_tool_has_a_title_a_description_and_hints(fake: FakeService, era: str) -> None:
    async with connect(fake, era) as client:
        for tool in (await client.list_tools()).tools:
            assert tool.title
            assert tool.description
            assert tool.annotations
            assert None not in (tool.annotations.read_only_hint, tool.annotations.destructive_hint)
            # The protocol's defaults are left out.
            assert tool.annotations.idempotent_hint in (True, None)
            assert tool.annotations.open_world_hint in (False, None)


@pytest.mark.parametrize("host_files", [True, False])
async def test_hints_say_what_a_tool_can_do_to_the_world(fake: FakeService, era: str, host_files: bool) -> None:
    async with connect(fake, era, host_files=host_files) as client:
        found = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
    hints = {name: hint for name, hint in found.items() if hint is not None}
    assert [*hints] == TOOLS
    assert [name for name in hints if hints[name].open_world_hint is None] == ["install_libraries"]
    # No folder of this machine is open, so that artifacts are only read.
    assert [name for name in hints if hints[name].read_only_hint] == ["get_artifacts"]
    destructive = ["copy_file"] * host_files + ["manage_session"]
    assert [name for name in hints if hints[name].destructive_hint] == destructive
    assert [name for name in hints if hints[name].idempotent_hint] == ["manage_session"]


async def test_a_profile_that_allows_less_than_the_default_timeout_lowers_the_default(era: str) -> None:
    profile = load_profile()
    limits = profile.limits.model_copy(update={"timeout": 10.0})
    fake = FakeService(profile.model_copy(update={"limits": limits}))
    async with connect(fake, era) as client:
        schema = (await schemas(client))["execute_code"][0]["properties"]["timeout_seconds"]
        await answer(client, "execute_code", code="1")
    assert (schema["default"], schema["maximum"]) == (10.0, 10.0)
    assert fake.asked[0]["timeout"] is None  # the service then uses the lower one of both timeouts


@pytest.mark.parametrize(
    ("tool", "arguments", "named"),
    [
        ("execute_code", {}, ["code"]),
        ("execute_code", {"code": ""}, ["code", "empty"]),
        ("execute_code", {"code": None}, ["code", "a string", "null"]),
        ("execute_code", {"code": 1}, ["code", "a string", "1"]),
        ("execute_code", {"code": "1", "sesion_id": ""}, ["'sesion_id'", "'session_id'"]),
        ("execute_code", {"code": "1", "x": 1}, ["'x'", "timeout_seconds", "keep_session"]),
        ("execute_code", {"code": "1", "timeout_seconds": 0}, ["timeout_seconds", "above 0"]),
        ("execute_code", {"code": "1", "timeout_seconds": "5"}, ["timeout_seconds", "a number", "'5'"]),
        ("execute_code", {"code": "1", "timeout_seconds": 1e9}, ["timeout_seconds", "300", "1e+09"]),
        ("execute_code", {"code": "1", "libraries": "numpy"}, ["libraries", '["numpy"]']),
        ("execute_code", {"code": "1", "libraries": ["numpy", 1]}, ["libraries[1]", "a string"]),
        ("execute_code", {"code": "1", "variables": []}, ["variables", "an object"]),
        ("execute_code", {"code": "1", "keep_session": "no"}, ["keep_session", "true or false"]),
        ("install_libraries", {"libraries": []}, ["libraries", "empty"]),
        ("copy_file", {"session_id": "s", "path": "p", "direction": "up"}, ["direction", "'in' or 'out'"]),
        ("copy_file", {"session_id": "s", "path": "p", "content": "%", "encoding": "base64"}, ["content", "base64"]),
        ("copy_file", {"session_id": "s", "path": "p", "content": "1", "host_path": "/x"}, ["content", "host_path"]),
        ("copy_file", {"session_id": "s", "path": "p", "content": "1", "direction": "out"}, ["content", "out"]),
        ("get_artifacts", {"session_id": "unknown"}, ["session_id"]),
        ("get_artifacts", {"session_id": SESSION, "names": ["z"]}, ["names", "'z'", "none"]),
        ("manage_session", {"action": "stop"}, ["action", "'list', 'wait', 'read', 'cancel', "]),
        ("manage_session", {"action": "wait"}, ["run_id", "wait"]),
        ("manage_session", {"action": "close"}, ["session_id", "close"]),
    ],
)
async def test_a_wrong_argument_is_named_with_what_is_allowed_and_nothing_runs(
    fake: FakeService, era: str, tool: str, arguments: dict[str, Any], named: list[str]
) -> None:
    async with connect(fake, era) as client:
        said = await refusal(client, tool, **arguments)
    assert [part for part in named if part not in said] == []
    assert fake.asked == []


async def test_lone_surrogates_are_replaced_in_all_arguments(fake: FakeService, era: str) -> None:
    async with connect(fake, era) as client:
        await answer(client, "execute_code", code="'\ud800'", variables={"x": ["\ud800"]}, stdin="\udc00")
    (asked,) = fake.asked
    assert (asked["code"], asked["stdin"]) == ("'\ufffd'", "\ufffd")
    assert asked["variables"] == {"x": ["\ufffd"]}


async def test_text_with_replaced_characters_is_written_with_a_note(fake: FakeService, era: str) -> None:
    async with connect(fake, era) as client:
        done = text(await call(client, "copy_file", session_id=SESSION, path="a.txt", content="a\ud800"))
        assert fake.stored["a.txt"] == "a\ufffd".encode()
        assert done.splitlines()[0] == "copied in: a.txt (4B)"
        assert done.splitlines()[1].startswith("note: U+FFFD in content stands for characters that were not valid Unic")
        same = {"content": b64encode("\ufffd".encode()).decode(), "encoding": "base64"}
        assert "note" not in text(await call(client, "copy_file", session_id=SESSION, path="a.txt", **same))


async def test_null_means_the_default_of_an_optional_argument(fake: FakeService, era: str) -> None:
    async with connect(fake, era) as client:
        await answer(client, "execute_code", code="1", session_id=None, libraries=None)
    assert fake.asked[0]["session_id"] == ""


async def test_an_unknown_tool_is_refused_with_the_names_of_the_tools(fake: FakeService, era: str) -> None:
    async with connect(fake, era) as client:
        with pytest.raises(MCPError, match="execute_code, install_libraries"):
            await client.call_tool("run", {})


async def test_an_installation_of_installed_libraries_reports_that_they_are_installed(
    fake: FakeService, era: str
) -> None:
    async with connect(fake, era) as client:
        done = await call(client, "install_libraries", libraries=["six"])
    assert text(done) == f"session: {SESSION}\ninstalled: nothing; the libraries were already available"


async def test_an_installation_answers_with_what_changed_and_counts_the_rest(fake: FakeService, era: str) -> None:
    before = tuple(Library(f"kept{number}", "1") for number in range(41))
    new = (Library("added", "3.0"), Library("replaced", "1.9"))
    fake.installation = Installation(SESSION, (*before, *new), (*before, Library("replaced", "2.0")))
    async with connect(fake, era) as client:
        done = await call(client, "install_libraries", libraries=["added", "replaced<2"])
    assert text(done) == f"session: {SESSION}\ninstalled: added 3.0, replaced 1.9; and 41 more, as before"
    assert done.structured_content is not None
    assert [library["name"] for library in done.structured_content["libraries"]] == ["added", "replaced"]
    assert done.structured_content["unchanged"] == 41
    fake.installation = Installation(SESSION, before, before)
    async with connect(fake, era) as client:
        again = await call(client, "install_libraries", libraries=["kept1"])
    assert text(again) == f"session: {SESSION}\ninstalled: nothing; the libraries were already available"


async def test_our_errors_reach_the_caller_word_for_word(fake: FakeService, era: str) -> None:
    fake.failure = CapacityReached("all 32 sessions are busy; close one, or try again")
    async with connect(fake, era) as client:
        assert await refusal(client, "execute_code", code="1") == "all 32 sessions are busy; close one, or try again"
    assert fake.forgotten == 1  # its caller has the answer
    assert fake.results_taken == 0


async def test_other_exceptions_are_logged_and_reveal_nothing_to_the_caller(
    fake: FakeService, era: str, caplog: pytest.LogCaptureFixture
) -> None:
    fake.failure = RuntimeError("the secret")
    with caplog.at_level(logging.ERROR):
        async with connect(fake, era) as client:
            assert "secret" not in await refusal(client, "execute_code", code="1")
    assert "the secret" in caplog.text


async def test_a_failed_run_is_a_result_whose_text_contains_everything(fake: FakeService, era: str) -> None:
    fake.execution = ran(
        Artifact("a b.txt", "text/plain", 3),
        status="timeout",
        exit_code=137,
        stdout=Output("printed\n", omitted=2048, raw=b"printed\n\xff"),
        stderr=Output("warned"),
        result="42",
        session_state="fresh",
        notes=(Note("state_lost", "the state was lost"),),
    )
    async with connect(fake, era) as client:
        result = await call(client, "execute_code", code="1")
    assert not result.is_error
    uri = f"sandbox://sessions/{SESSION}/artifacts/a%20b.txt"
    assert text(result).splitlines() == [
        "status: timeout (exit code 137)",
        f"session: {SESSION} (fresh)",
        "note: the state was lost",
        "note: stdout: bytes that are not UTF-8 were replaced by U+FFFD",
        "note: 2KiB of stdout were left out",
        f"artifact: a b.txt (text/plain, 3B) {uri}",
        "stdout:",
        "printed",
        "stderr:",
        "warned",
        "result:",
        "42",
    ]
    assert isinstance(result.content[1], ResourceLink)
    assert result.content[1].uri == uri


async def test_text_that_json_cannot_carry_is_replaced(fake: FakeService, era: str) -> None:
    fake.execution = ran(stdout=Output("a\ud800b\0\x1b]52;c;x\x07"))
    async with connect(fake, era) as client:
        structured = await answer(client, "execute_code", code="1")
    assert structured["stdout"] == "a\ufffdb\0\x1b]52;c;x\x07"


async def test_four_small_real_images_are_shown_and_the_rest_is_linked(fake: FakeService, era: str) -> None:
    fake.stored = {"claims.png": b"text", "half.png": PNG[:40], "big.png": PNG + bytes(1_000_000)}
    fake.stored |= {f"{number}.png": png(3, 2 + number) for number in range(5)}
    fake.execution = ran(*fake.artifacts(SESSION), Artifact("evicted.png", "image/png", 30, 3, 2))
    async with connect(fake, era) as client:
        result = await call(client, "execute_code", code="1")
    assert sum(isinstance(block, ImageContent) for block in result.content) == 4
    links = [block.name for block in result.content if isinstance(block, ResourceLink)]
    assert links == ["claims.png", "half.png", "big.png", "4.png", "evicted.png"]


async def test_pictures_that_are_not_shown_as_they_are_are_on_the_overview_and_a_note_says_so(
    fake: FakeService, era: str
) -> None:
    fake.stored = {"big.png": png(8001, 1), **{f"{number}.png": png(3, 1 + number) for number in range(6)}}
    fake.drawn = Overview(png(30, 20), ("big.png", "4.png", "5.png"))
    fake.execution = ran(*fake.artifacts(SESSION), overview=fake.drawn)
    said = (
        "the last image shows big.png, 4.png, 5.png smaller, in this order; get_artifacts with at most 4 names shows small "
        "pictures as they are, and links return the files"
    )
    async with connect(fake, era) as client:
        result = await call(client, "execute_code", code="1")
        fetched = await call(client, "get_artifacts", session_id=SESSION, names=[*fake.stored])
        fake.drawn = Overview(png(30, 20), ("big.png",))
        single = await call(client, "get_artifacts", session_id=SESSION, names=["big.png"])
    assert result.structured_content is not None and result.structured_content["notes"] == [said]
    for each in (result, fetched):
        assert f"note: {said}" in text(each).splitlines()
        images = [block.data for block in each.content if isinstance(block, ImageContent)]
        assert (len(images), b64decode(images[-1])) == (5, png(30, 20))
        assert isinstance(each.content[-1], ImageContent)
    assert "note: the last image shows big.png smaller; its link returns the file" in text(single)


async def test_a_note_says_why_a_picture_is_not_shown_and_what_to_do(fake: FakeService, era: str) -> None:
    fake.stored = {"long.png": png(1, 8001), "large.png": PNG + bytes(1_000_000), "half.png": png(3, 9)[:-1]}
    fake.stored |= {f"{number}.png": png(3, 1 + number) for number in range(5)}
    fake.drawn = Overview(lacking="the session has ended")
    async with connect(fake, era) as client:
        result = await call(client, "get_artifacts", session_id=SESSION, names=[*fake.stored])
    assert [line for line in text(result).splitlines() if line.startswith("note: not shown")] == [
        "note: not shown: long.png, large.png: larger than 976.6KiB, 8000 pixels a side or 40 million pixels, and the session "
        "has ended; save a smaller one to see it",
        "note: not shown: half.png: not complete; write it again",
        "note: not shown: 4.png: too many; get_artifacts with at most 4 names shows small pictures as they are",
    ]


async def test_of_many_broken_pictures_few_are_read_and_all_others_are_only_linked(fake: FakeService, era: str) -> None:
    fake.stored = {f"{number}.png": png(3, 1 + number)[:-1] for number in range(30)} | {"claims.png": b"text"}
    async with connect(fake, era) as client:
        result = await call(client, "get_artifacts", session_id=SESSION, names=[*fake.stored])
    assert fake.looked_at == [f"{number}.png" for number in range(8)]
    assert {type(block) for block in result.content[1:]} == {ResourceLink}


async def test_files_are_returned_whole_up_to_a_size_of_all_together_and_each_once(fake: FakeService, era: str) -> None:
    fake.stored = {f"{number}.txt": b"x" * 200_000 for number in range(9)}
    async with connect(fake, era) as client:
        result = await call(client, "get_artifacts", session_id=SESSION, names=["0.txt", *fake.stored, "1.txt"])
    embedded = [block for block in result.content if isinstance(block, EmbeddedResource)]
    links = [block.name for block in result.content if isinstance(block, ResourceLink)]
    assert len(embedded) == 5
    assert links == [f"{number}.txt" for number in range(5, 9)]


async def test_a_long_text_is_read_as_base64_which_json_does_not_make_longer(fake: FakeService, era: str) -> None:
    fake.stored = {"long.txt": b"\x01" * 1_024_001, "text.txt": b"\x01" * 1_024_000}
    async with connect(fake, era) as client:
        read = [
            (await client.read_resource(artifact_uri(SESSION, name))).contents[0] for name in ("long.txt", "text.txt")
        ]
    assert isinstance(read[0], BlobResourceContents) and b64decode(read[0].blob) == fake.stored["long.txt"]
    assert isinstance(read[1], TextResourceContents) and read[1].text.encode() == fake.stored["text.txt"]


async def test_a_large_artifact_is_read_in_parts_as_its_error_says(fake: FakeService, era: str) -> None:
    fake.stored = {"a?b.bin": random.Random(1).randbytes((9 << 20) + 1), "just.bin": bytes(4 << 20)}
    got = bytearray()
    async with connect(fake, era) as client:
        whole = (await client.read_resource(artifact_uri(SESSION, "just.bin"))).contents[0]
        assert isinstance(whole, BlobResourceContents) and len(b64decode(whole.blob)) == 4 << 20
        address = artifact_uri(SESSION, "a?b.bin")
        with pytest.raises(
            MCPError, match=r"has 9MiB, and one answer carries 4MiB at most; read it in 3 parts"
        ) as refused:
            await client.read_resource(address)
        step = refused.value.error.message.rpartition(" ")[2]
        assert step == f"{address}?offset=0&length={4 << 20}"
        with pytest.raises(MCPError, match="length must be at most 4194304 bytes in one answer; read several parts"):
            await client.read_resource(f"{address}?offset=0&length=4194305")
        while len(got) < len(fake.stored["a?b.bin"]):
            part = (await client.read_resource(step)).contents[0]
            assert isinstance(part, BlobResourceContents) and part.uri == step
            got += b64decode(part.blob)
            step = step.replace(step.partition("=")[2], f"{len(got)}&length={4 << 20}")
    assert got == fake.stored["a?b.bin"]


async def test_thousands_of_artifacts_are_listed_in_parts_from_the_last_to_the_first(
    fake: FakeService, era: str
) -> None:
    fake.stored = {f"{number}.txt": b"" for number in range(450)}
    found: list[str] = []
    lines: list[str] = []
    offset = 0
    async with connect(fake, era) as client:
        while offset or not found:
            result = await call(client, "get_artifacts", session_id=SESSION, offset=offset)
            found[:0] = [found["name"] for found in result.structured_content["artifacts"]]
            lines += [line for line in text(result).splitlines() if line.startswith("artifact: ")]
            before, offset = offset, result.structured_content["next_offset"]
            part = f"note: artifacts {max(1, 251 - before)} to {450 - before} of 450"
            more = f"; call again with offset {offset} to list those before them"
            assert text(result).splitlines()[-1] == (part + more if offset else part)
        refused = await call(client, "get_artifacts", session_id=SESSION, offset=450)
    assert found == [*fake.stored]
    assert len({*lines}) == len(lines) == 450  # the text lists them all as well
    assert text(refused) == "offset must be below 450, the number of artifacts; got 450"


async def test_of_many_named_artifacts_the_last_ones_are_returned(fake: FakeService, era: str) -> None:
    fake.stored = {f"{number}.txt": b"" for number in range(300)}
    async with connect(fake, era) as client:
        result = await call(client, "get_artifacts", session_id=SESSION, names=[*fake.stored])
    assert len(result.structured_content["artifacts"]) == 200
    assert "note: these are the last 200 of 300 artifacts; name the others in a further call" in text(result)


async def test_the_same_picture_is_shown_once(fake: FakeService, era: str) -> None:
    fake.stored = {"figure-1.png": PNG, "saved.png": PNG, "other.png": png(4, 2)}
    fake.execution = ran(*fake.artifacts(SESSION))
    async with connect(fake, era) as client:
        _, *blocks = (await call(client, "execute_code", code="1")).content
    assert [type(block) for block in blocks] == [ImageContent, ResourceLink, ImageContent]
    assert [block.name for block in blocks if isinstance(block, ResourceLink)] == ["saved.png"]


async def test_images_are_listed_with_their_size_in_pixels(fake: FakeService, era: str) -> None:
    fake.stored = {"a.png": PNG, "claims.png": b"text", "a.txt": b"text"}
    async with connect(fake, era) as client:
        result = await call(client, "get_artifacts", session_id=SESSION)
        listed = (await answer(client, "get_artifacts", session_id=SESSION))["artifacts"]
    assert [(found["width"], found["height"]) for found in listed] == [(3, 2), (0, 0), (0, 0)]
    assert "artifact: a.png (image/png 3x2, 68B)" in text(result)


async def test_artifacts_requested_by_name_are_returned_whole_if_small(fake: FakeService, era: str) -> None:
    fake.stored = {"a.txt": b"text", "b.png": PNG, "big.txt": bytes(300_000)}
    async with connect(fake, era) as client:
        result = await call(client, "get_artifacts", session_id=SESSION, names=["a.txt", "b.png", "big.txt"])
    _, embedded, image, linked = result.content
    assert isinstance(embedded, EmbeddedResource)
    assert isinstance(embedded.resource, TextResourceContents)
    assert embedded.resource.text == "text"
    assert isinstance(image, ImageContent)
    assert isinstance(linked, ResourceLink)
    assert text(result).endswith("text is also returned in parts, by offset and length")


async def test_long_text_is_read_in_parts(fake: FakeService, era: str) -> None:
    whole = "aé€\N{DROMEDARY CAMEL}" * 50
    fake.stored = {"a.txt": whole.encode(), "b.txt": b"", "c.txt": b"\0\xff\r\n", "d.bin": b"\0"}
    read, offset, calls = "", 0, 0
    async with connect(fake, era) as client:

        async def part(**arguments: Any) -> CallToolResult:
            return await call(client, "get_artifacts", session_id=SESSION, **arguments)

        while calls == 0 or offset:
            result = await part(names=["a.txt"], offset=offset, length=17)
            assert result.structured_content is not None
            read += result.structured_content["text"]
            offset = result.structured_content["next_offset"]
            calls += 1
            assert len(result.content) == 1
            if calls == 2:
                assert text(result).startswith(f"a.txt: bytes 16 to 33 of 500; call again with offset {offset}\n")
        assert read == whole
        assert (
            text(await part(names=["a.txt"], offset=499)) == "a.txt: bytes 499 to 500 of 500\n\N{REPLACEMENT CHARACTER}"
        )
        assert text(await part(names=["a.txt"], offset=500)) == "a.txt: bytes 500 to 500 of 500\n"
        assert text(await part(names=["b.txt"], length=5)) == "b.txt: bytes 0 to 0 of 0\n"
        assert text(await part(names=["c.txt"], offset=0, length=9)).endswith("of 4\n\ufffd\ufffd\r\n")
        refused = await part(names=["d.bin"], length=9)
        assert refused.is_error
        assert text(refused).startswith("names: 'd.bin' is not text; leave out offset and length")
        assert (await answer(client, "get_artifacts", session_id=SESSION, names=["a.txt"]))["text"] == ""


async def test_files_come_out_as_text_as_base64_or_as_a_link(fake: FakeService, era: str) -> None:
    fake.stored = {"a.txt": "é\n".encode(), "b.bin": b"\xff\0", "big.txt": bytes(2_000_000)}
    async with connect(fake, era) as client:
        out = {"session_id": SESSION, "direction": "out"}
        assert (await answer(client, "copy_file", path="a.txt", **out))["content"] == "é\n"
        assert (await answer(client, "copy_file", path="b.bin", encoding="base64", **out))["content"] == "/wA="
        for arguments in ({"path": "b.bin"}, {"path": "big.txt"}, {"path": "big.txt", "encoding": "base64"}):
            result = await call(client, "copy_file", **arguments, **out)
            assert isinstance(result.content[1], ResourceLink)


async def test_host_paths_are_refused_except_on_stdio(fake: FakeService, era: str) -> None:
    async with connect(fake, era, host_files=False) as client:
        said = await refusal(client, "copy_file", session_id=SESSION, path="a", host_path="/etc/passwd")
    assert "host_path" in said
    assert "stdio" in said


@pytest.mark.parametrize(("host_files", "mode", "seen"), [(True, "legacy", 1), (False, "legacy", 0)])
async def test_over_http_sessions_of_others_are_not_listed(
    fake: FakeService, host_files: bool, mode: str, seen: int
) -> None:
    async with connect(fake, mode, host_files=host_files) as client:
        assert len((await answer(client, "manage_session", action="list"))["sessions"]) == seen
        await answer(client, "execute_code", code="1")
        assert len((await answer(client, "manage_session", action="list"))["sessions"]) == 1


async def test_over_http_a_caller_is_known_by_its_address_and_its_connection_if_that_lasts(fake: FakeService) -> None:
    async def refuse(request: Request, error: HTTPException) -> Response:
        raise error

    application = build_server(fake.service(), host_files=False).streamable_http_app(json_response=True)
    application.add_middleware(Bodies, 4 << 20, refuse)

    def client_at(host: str) -> httpx2.AsyncClient:
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        return httpx2.AsyncClient(transport=httpx2.ASGITransport(application, client=(host, 1)), headers=headers)

    async with application.router.lifespan_context(application):
        for host in ("10.0.0.1", "10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::2"):
            async with client_at(host) as http:
                hello = await http.post(HTTP, content=message("initialize", CLIENT, 1))
                session = {"mcp-session-id": hello.headers["mcp-session-id"]}
                await http.post(HTTP, content=message("notifications/initialized"), headers=session)
                asked = message("tools/call", {"name": "execute_code", "arguments": {"code": "1"}}, 2)
                await http.post(HTTP, content=asked, headers=session)
                await http.delete(HTTP, headers=session)
            async with (
                client_at(host) as http,
                Client(streamable_http_client(HTTP, http_client=http), mode="2026-07-28") as client,
            ):
                await answer(client, "execute_code", code="1")
    assert [(host, bool(connection)) for host, connection in fake.origins] == [
        *[("10.0.0.1", True), ("10.0.0.1", False)] * 2,
        *[("10.0.0.2", True), ("10.0.0.2", False)],
        *[("2001:db8::/64", True), ("2001:db8::/64", False)] * 2,
    ]
    assert len({*fake.origins}) == 8
    assert {*fake.callers} == {ANONYMOUS}


async def test_the_principal_is_the_user_of_the_machine_or_over_http_the_token(fake: FakeService) -> None:
    async with connect(fake, "2026-07-28") as client:
        await answer(client, "execute_code", code="1")
        await answer(client, "install_libraries", libraries=["six"])

    async def refuse(request: Request, error: HTTPException) -> Response:
        raise error

    application = build_server(fake.service(), host_files=False).streamable_http_app(json_response=True)
    application.add_middleware(Bodies, 4 << 20, refuse)
    require_token(application, "0123456789abcdef")
    headers = {"Authorization": "Bearer 0123456789abcdef"}
    async with (
        application.router.lifespan_context(application),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(application), headers=headers) as http,
        Client(streamable_http_client(HTTP, http_client=http), mode="2026-07-28") as client,
    ):
        await answer(client, "execute_code", code="1")
        await answer(client, "install_libraries", libraries=["six"])
    assert fake.callers == [USER, USER, TOKEN, TOKEN]


async def test_a_connection_does_not_accumulate_sessions_that_ended(
    fake: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers: list[Peer] = []
    made = Audience.peer

    def peer(self: Audience, ctx: ServerRequestContext[Any]) -> Peer:
        found = made(self, ctx)
        peers.append(found)
        return found

    monkeypatch.setattr(Audience, "peer", peer)
    async with connect(fake, "legacy", host_files=False) as client:
        await answer(client, "execute_code", code="1")
        for number in range(3 * fake.profile.sessions.max):
            fake.execution = dataclasses.replace(NOTHING_PRINTED, session_id=f"{number:032x}")
            await answer(client, "execute_code", code="1")
        listed = await answer(client, "manage_session", action="list")
    assert [session["session_id"] for session in listed["sessions"]] == [SESSION]
    assert len({id(found) for found in peers}) == 1
    assert len(peers[0].sessions) <= 2 * fake.profile.sessions.max


async def test_the_list_of_sessions_shows_how_full_the_pool_is_as_text_and_as_data(fake: FakeService, era: str) -> None:
    async with connect(fake, era) as client:
        result = await call(client, "manage_session", action="list")
        structured = await answer(client, "manage_session", action="list")
    assert structured["pool"] == {"warm": 1, "leased": 2, "max": 32}
    assert text(result).splitlines()[-1] == "sandboxes: 2 in use, 1 warm, 32 at most"


async def test_a_request_without_a_connection_sees_only_the_session_that_it_names(fake: FakeService) -> None:
    async with connect(fake, "2026-07-28", host_files=False) as client:
        await answer(client, "execute_code", code="1")
        assert (await answer(client, "manage_session", action="list"))["sessions"] == []
        listed = await answer(client, "manage_session", action="list", session_id=SESSION)
    assert [session["session_id"] for session in listed["sessions"]] == [SESSION]
