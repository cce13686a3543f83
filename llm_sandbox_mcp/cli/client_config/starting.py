"""The command with which a host starts this server."""

import json
import re
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

_NAME = "llm-sandbox-mcp"
_CACHED = re.compile(r"(archive|environments)-v\d+")
"""The folders of uv's cache that have environments."""


def starting_command(extras: Sequence[str] = ()) -> list[str]:
    """The command; its path is absolute, because hosts start servers with a minimal PATH.

    `extras` are the optional dependencies that the server needs, which uvx installs with it.
    """
    # Links are not resolved: in a virtual environment the interpreter is a link, and its path selects that environment.
    python = Path(sys.executable).absolute()
    if in_cache_of_uv(python):
        return ["uvx", *_origin(f"{_NAME}[{','.join(extras)}]" if extras else _NAME), _NAME]
    script = python.with_name(_NAME)
    return [str(script)] if script.is_file() else [str(python), "-m", "llm_sandbox_mcp"]


def in_cache_of_uv(python: Path) -> bool:
    """Whether an interpreter belongs to uvx: such an environment can be deleted at any time, as by `uv cache clean`."""
    return any(
        _CACHED.fullmatch(folder.name) and (folder.parent / "CACHEDIR.TAG").is_file() for folder in python.parents
    )


def _origin(requirement: str) -> list[str]:
    """What uvx installs and, if not from a package index, from where, as pip and uv record it (PEP 610)."""
    try:
        recorded = distribution(_NAME).read_text("direct_url.json")
    except PackageNotFoundError:
        recorded = None
    if recorded is None:
        return [] if requirement == _NAME else ["--from", requirement]
    origin = json.loads(recorded)
    version = origin.get("vcs_info")
    address = f"{version['vcs']}+{origin['url']}@{version['commit_id']}" if version else origin["url"]
    return ["--from", address if requirement == _NAME else f"{requirement} @ {address}"]
