"""TOML. tomlkit keeps comments and layout of what it edits."""

import tomllib
from collections.abc import Mapping
from typing import Any

import tomlkit
from tomlkit.items import InlineTable


def read(text: str) -> Any:
    """The content."""
    return tomllib.loads(text)


def put(text: str, table: str, name: str, entry: Mapping[str, Any]) -> str:
    """The text with the entry; a new one comes last."""
    document = tomlkit.parse(text)
    servers: Any = document.get(table, {})
    if name in servers:
        servers[name].update(entry)
    elif isinstance(servers, InlineTable):  # it is closed: no table below can add to it
        servers[name] = {**entry}
    else:
        gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
        return f"{text}{gap}{tomlkit.dumps({table: {name: {**entry}}})}"
    return tomlkit.dumps(document)
