"""The links of the README that install the server: each has the entry that `client-config` prints under uvx."""

import base64
import json
import shlex
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from llm_sandbox_mcp.cli.client_config.hosts import host
from tests.test_readme import README

LINKS = {"cursor": "https://cursor.com/en/install-mcp?", "vscode": "https://insiders.vscode.dev/redirect/mcp/install?"}
UVX = ("uvx", ["llm-sandbox-mcp"])


def entry(name: str) -> tuple[str, dict[str, Any]]:
    """The name and the entry of a server that uvx starts."""
    _, server, settings = host(name).filled(*UVX)
    return server, dict(settings)


@pytest.mark.parametrize("name", LINKS)
def test_a_link_installs_the_entry_of_the_host(name: str) -> None:
    _, _, rest = README.partition(LINKS[name])
    query = parse_qs(urlsplit(LINKS[name] + rest.partition(")")[0]).query, strict_parsing=True)
    ((server,), (config,)) = query["name"], query["config"]
    text = base64.b64decode(config, validate=True).decode() if name == "cursor" else config
    assert (server, json.loads(text)) == entry(name)


def test_the_command_for_claude_code_adds_its_entry() -> None:
    _, _, rest = README.partition("`claude mcp add ")
    server, separator, command, *arguments = shlex.split(rest.partition("`")[0])
    name, settings = entry("claude-code")
    assert (server, separator) == (name, "--")
    assert {"type": "stdio", "command": command, "args": arguments} == settings
