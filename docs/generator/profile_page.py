"""The reference of a profile, from `configs/default.toml`: its keys, their defaults, and the comments about them."""

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

from llm_sandbox_mcp.host.folders import CONFIGS

from .markdown import code, plain, sentence, table

_INTRODUCTION = """\
# Profile reference

Every key of a profile, with its default. Your own profile contains only the keys that differ. Sizes and times are
strings with a unit, such as `"512MiB"` and `"30s"`. [Profile](../profile.md) says how a profile is named and checked;
[ready profiles](../configs/README.md) lists those that are included.
"""


def make_profile_page() -> str:
    """One table for each section, and an anchor for each key, such as `#limits.memory`."""
    text = (CONFIGS / "default.toml").read_text(encoding="utf-8")
    explained = _comments(text)
    parts = [_INTRODUCTION]
    for name, section in _sections(tomllib.loads(text)):
        # Only the first of the languages explains the keys that all of them have.
        elsewhere = "[as in languages.python](#languages.python.{})" if name.startswith("languages.") else ""
        rows = [
            (
                f'<code id="{name}.{key}">{key}</code>',
                code(json.dumps(value)),
                plain(explained[f"{name}.{key}"]) or elsewhere.format(key),
            )
            for key, value in section.items()
        ]
        parts += [f"## {name}\n", f"{sentence(explained[name])}\n", table(("key", "default", "meaning"), rows)]
    return "\n".join(parts)


def _sections(content: dict[str, Any], above: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The tables that contain keys, by their names."""
    for name, section in content.items():
        if name == "languages":
            yield from _sections(section, "languages.")
        else:
            yield f"{above}{name}", section


def _comments(text: str) -> dict[str, str]:
    """The comment at each section and key, by its whole name; a line with only a comment, indented, continues it."""
    found: dict[str, str] = {}
    section = last = ""
    for line in text.splitlines():
        before, _, comment = (part.strip() for part in line.partition("#"))
        if header := re.match(r"\[([\w.]+)\]", before):
            section = last = header[1]
            found[last] = comment
        elif key := re.match(r"(\w+) = ", before):
            last = f"{section}.{key[1]}"
            found[last] = comment
        elif line.startswith(" ") and not before:
            found[last] += f" {comment}"
    return found
