"""`llm-sandbox-mcp client-config`. Each client is a file in `configs/clients`, so that a new client needs no code."""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import InvalidArgument
from ..folders import CONFIGS
from ..profile import load_profile

_CLIENTS = CONFIGS / "clients"


def main(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Prints the entry on stdout, so that it can be piped, and instructions where to put it on stderr."""
    template = _template(options.client)
    profile = options.profile or environ.get("LLM_SANDBOX_PROFILE")
    load_profile(profile)
    command, *arguments = _command()
    if profile:
        arguments += ["--profile", str(Path(profile).absolute()) if Path(profile).is_file() else profile]
    entry = _fill(template["entry"], command, arguments)
    sys.stderr.write("".join(f"{line}\n" for line in template["where"]))
    sys.stdout.write(f"{json.dumps(entry, indent=2)}\n")
    return 0


def client_names() -> list[str]:
    """The clients whose entries can be printed."""
    return sorted(path.stem for path in _CLIENTS.glob("*.json"))


def _template(client: str) -> Any:
    known = {path.stem: path for path in sorted(_CLIENTS.glob("*.json"))}
    if client not in known:
        raise InvalidArgument(f"unknown client {client!r}; available: {', '.join(known)}")
    return json.loads(known[client].read_text(encoding="utf-8"))


def _command() -> list[str]:
    """The command with an absolute path, because hosts start servers with a minimal PATH."""
    # Links are not resolved: in a virtual environment the interpreter is a link, and its path selects that environment.
    python = Path(sys.executable).absolute()
    script = python.with_name("llm-sandbox-mcp")
    return [str(script)] if script.is_file() else [str(python), "-m", "llm_sandbox_mcp"]


def _fill(template: Any, command: str, arguments: list[str]) -> Any:
    match template:
        case dict():
            return {key: _fill(value, command, arguments) for key, value in template.items()}
        case "{command}":
            return command
        case "{arguments}":
            return arguments
    return template
