"""The hosts whose entry is known. Each is a file in `configs/clients`, so that a new host needs no code."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.errors import InvalidArgument
from ...base.similar import available
from ...host.folders import CONFIGS

_FOLDER = CONFIGS / "clients"
_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")
"""A variable of the environment and what replaces it if it is not set, as in shells."""


@dataclass(frozen=True, slots=True)
class Host:
    """A program that starts MCP servers."""

    title: str
    """Its name for people."""
    source: str
    """The pages of its documentation that describe file and format."""
    format: str
    """The format of its file: json, toml or yaml."""
    file: str | Mapping[str, str]
    """The path of its file, on all systems or for each value of `sys.platform`; `~` and `${VARIABLE:-default}` work."""
    where: str
    """Where else a person finds the file."""
    then: str
    """What a person does once the entry is in the file."""
    entry: Mapping[str, Mapping[str, Mapping[str, Any]]]
    """The file if it had nothing else: a table of servers, a name, the entry with `{command}` and `{arguments}`."""

    def path(self, environ: Mapping[str, str]) -> Path:
        """The path of its file on this system; it can be relative, to a project's folder."""
        file = self.file if isinstance(self.file, str) else self.file.get(sys.platform, self.file["linux"])
        return Path(_VARIABLE.sub(lambda found: environ.get(found[1]) or found[2], file)).expanduser()

    def filled(self, command: str, arguments: Sequence[str]) -> tuple[str, str, Mapping[str, Any]]:
        """The table, the name and the entry that starts the server with a command."""
        ((table, servers),) = self.entry.items()
        ((name, entry),) = servers.items()
        given = {"{command}": command, "{arguments}": [*arguments]}
        return (
            table,
            name,
            {key: given.get(value, value) if isinstance(value, str) else value for key, value in entry.items()},
        )


def host_names() -> list[str]:
    """The names by which the hosts are called in commands."""
    return sorted(path.stem for path in _FOLDER.glob("*.json"))


def host(name: str) -> Host:
    """The host of that name; raises `InvalidArgument` if there is none."""
    if name not in (names := host_names()):
        raise InvalidArgument(f"unknown client {name!r}", available(name, names))
    return Host(**json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8")))
