"""The reference of what a client is offered: tools, prompts and resources, as the server itself lists them.

A real client asks the real server; its backend is the one in memory, so that no engine and no package index is needed.
"""

import json
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp import Client
from mcp.types import Prompt, Resource, ResourceTemplate, TextContent, Tool

from llm_sandbox_mcp.host.folders import HostFolders
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.server import build_server
from llm_sandbox_mcp.server.schemas import Answer
from llm_sandbox_mcp.wiring import open_service
from tests.memory.backend import MemoryBackend

from .markdown import code, plain, sentence, table

_INTRODUCTION = """\
# Tools reference

What the server offers to a client, in the words in which it describes itself to models. They name the limits, libraries
and network of the profile; here those of the [default profile](profile.md).
[What a model sees](../what-a-model-sees.md) explains how the tools work together.
"""

_EVERYTHING = {"files": {"folders": ["/home/me/data", "/home/me/out:rw"]}, "tools": {"old_names": True}}
"""Settings of a profile that add tools and arguments."""

_ADDED = "only if the operator opened a folder, here `/home/me/data` and, for writing, `/home/me/out`"


def make_tools_page() -> str:
    """Asks a server for everything that it offers."""
    return anyio.run(_ask)


async def _ask() -> str:
    async with _connect({}) as usual:
        shown = {tool.name: tool for tool in (await usual.list_tools()).tools}
        instructions = usual.instructions or ""
        prompts = [part for prompt in (await usual.list_prompts()).prompts for part in await _prompt(usual, prompt)]
        resources = [_resource(item.uri, item) for item in (await usual.list_resources()).resources]
        templates = (await usual.list_resource_templates()).resource_templates
        resources += [_resource(item.uri_template, item) for item in templates]
    async with _connect(_EVERYTHING) as full:
        tools = [part for tool in (await full.list_tools()).tools for part in _tool(tool, shown.get(tool.name))]
    return "\n".join(
        (
            _INTRODUCTION,
            "The server introduces itself:\n",
            f"> {plain(instructions)}\n",
            "## Tools\n",
            *tools,
            "## Prompts\n",
            *prompts,
            "## Resources\n",
            table(("address", "content", "type"), resources),
        )
    )


@asynccontextmanager
async def _connect(settings: Mapping[str, Any]) -> AsyncIterator[Client]:
    """A client of a server with these settings, which treats it as one on stdio; the same on any machine."""
    profile = load_profile(over=settings)
    with tempfile.TemporaryDirectory() as folder:
        folders = HostFolders(*(Path(folder, name) for name in ("cache", "runtime", "sessions")))
        async with (
            open_service(profile, folders, make=lambda *_: MemoryBackend()) as service,
            Client(build_server(service, host_files=True)) as client,
        ):
            yield client


def _tool(tool: Tool, usual: Tool | None) -> Iterator[str]:
    yield f"### {tool.name}\n"
    if usual is None:
        yield "Only with `tools.old_names` in the profile.\n"
    yield f"{plain((usual or tool).description or '')}\n"
    given = (usual or tool).input_schema["properties"]
    required = tool.input_schema.get("required", ())
    rows = [
        (
            f'<code id="{tool.name}.{name}">{name}</code>',
            _type(schema),
            "required" if name in required else code(json.dumps(schema.get("default"))),
            "; ".join(filter(None, (plain(schema.get("description", "")), "" if name in given else _ADDED))),
        )
        for name, schema in tool.input_schema["properties"].items()
    ]
    if rows:
        yield table(("argument", "type", "default", "meaning"), rows)
    if tool.output_schema:
        yield "It returns:\n"
        yield table(("field", "type", "meaning"), _fields(tool.output_schema["properties"]))


def _fields(properties: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The fields of an answer; the schema that models get does not describe the objects in it, their model does."""
    models = {frozenset(model.model_fields): model for model in Answer.__subclasses__()}
    schema = models[frozenset(properties)].model_json_schema(mode="serialization")
    for name, field in schema["properties"].items():
        yield code(name), _type(properties[name]), plain(field.get("description", ""))
        item = field.get("items", {}).get("$ref", "").rpartition("/")[2]
        for inner, of_item in schema.get("$defs", {}).get(item, {}).get("properties", {}).items():
            yield code(f"{name}[].{inner}"), _type(of_item), plain(of_item.get("description", ""))


def _type(schema: Mapping[str, Any]) -> str:
    """The type in words, with the values or bounds that it has."""
    if values := schema.get("enum"):
        return ", ".join(code(value) for value in values)
    bounds = {
        "exclusiveMinimum": "above {}",
        "minimum": "at least {}",
        "maximum": "at most {}",
        "minLength": "not empty",
        "minItems": "not empty",
    }
    named = f"list of {schema['items']['type']}s" if schema.get("type") == "array" else str(schema.get("type", "any"))
    limits = [text.format(f"{schema[key]:g}") for key, text in bounds.items() if key in schema]
    return ", ".join((named, *limits))


def _resource(address: str, resource: Resource | ResourceTemplate) -> tuple[str, str, str]:
    return code(address), plain(resource.description or ""), code(resource.mime_type or "")


async def _prompt(client: Client, prompt: Prompt) -> list[str]:
    """A prompt with its arguments, and the text that the model gets, with their names in place of their values."""
    arguments = prompt.arguments or []
    got = await client.get_prompt(prompt.name, {argument.name: f"<{argument.name}>" for argument in arguments})
    rows = [
        (code(argument.name), "yes" if argument.required else "", plain(argument.description or ""))
        for argument in arguments
    ]
    texts = [message.content.text for message in got.messages if isinstance(message.content, TextContent)]
    return [
        f"### {prompt.name}\n",
        f"{sentence(prompt.description or '')}\n",
        table(("argument", "required", "meaning"), rows),
        "\n".join(("```text", *texts, "```\n")),
    ]
