"""Puts an entry into the text of a host's file, and leaves all other text as it is. A module for each format.

Each module has `read`, which returns the content as plain data (None if there is none), and `put`, which returns the
text with the entry. Both raise `ValueError` with the reason for a text that cannot be read, or not be edited.
"""

import importlib
from collections.abc import Mapping
from typing import Any


def with_entry(text: str, form: str, table: str, name: str, entry: Mapping[str, Any]) -> str:
    """The text with the entry of that name in that table.

    What a person added to an older entry, such as `env`, is kept. The text is unchanged if the entry is already there.
    Raises `ValueError` with the reason if it cannot be edited.
    """
    module = importlib.import_module(f".{form}_text", __name__)
    content = module.read(text)
    content = {} if content is None else content
    servers = content.get(table, {}) if isinstance(content, dict) else None
    if not isinstance(servers, dict):
        raise ValueError(f"{table} is not a table of servers")
    older = servers.get(name)
    whole = {**older, **entry} if isinstance(older, dict) else {**entry}
    if older == whole:
        return text
    edited: str = module.put(text, table, name, whole)
    if module.read(edited) != {**content, table: {**servers, name: whole}}:
        raise ValueError("its layout is unusual")
    return edited
