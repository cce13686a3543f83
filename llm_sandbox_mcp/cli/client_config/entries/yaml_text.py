"""YAML. ruamel.yaml says where things are; all else stays as it is, since writing it anew would move comments."""

import io
import json
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode


def read(text: str) -> Any:
    """The content."""
    try:
        return YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ValueError(f"{', '.join(filter(None, (error.context, error.problem)))}{line}") from error
    except YAMLError as error:
        raise ValueError(str(error)) from error


def put(text: str, table: str, name: str, entry: Mapping[str, Any]) -> str:
    """The text with the entry."""
    root = YAML(typ="safe", pure=True).compose(text)
    servers = _members(root).get(table)
    if servers is None:
        gap = "" if not text or text.endswith("\n") else "\n"
        return f"{text}{gap}{_dumped({table: {name: entry}}, 0)}"
    _, node = servers
    entries = _members(node)
    older = entries.get(name)
    if node.flow_style:  # JSON is valid there
        if older is not None:
            return f"{text[: older[1].start_mark.index]}{json.dumps(entry)}{text[older[1].end_mark.index :]}"
        start = node.start_mark.index + 1
        comma = ", " if entries else ""
        return f"{text[:start]}{json.dumps(name)}: {json.dumps(entry)}{comma}{text[start:]}"
    key, value = older or list(entries.values())[-1]
    indent = key.start_mark.column
    end = _line_after(text, _end(value))
    start = key.start_mark.index - indent if older else end
    gap = "" if text[:start].endswith("\n") or not start else "\n"
    return f"{text[:start]}{gap}{_dumped({name: entry}, indent)}{text[end:]}"


def _members(node: Any) -> dict[str, tuple[Any, Any]]:
    return {key.value: (key, value) for key, value in node.value} if isinstance(node, MappingNode) else {}


def _end(node: Any) -> int:
    """Where a value ends: the end of a block is only known by the end of what it contains."""
    if isinstance(node, ScalarNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(last, tuple) else last)


def _line_after(text: str, at: int) -> int:
    """Where the next line begins; the end of some values is there already."""
    if text[:at].endswith("\n"):
        return at
    newline = text.find("\n", at)
    return len(text) if newline < 0 else newline + 1


def _dumped(content: Mapping[str, Any], indent: int) -> str:
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.width = 1 << 20
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # its default is None
    out = io.StringIO()
    yaml.dump(content, out)
    return "".join(f"{' ' * indent}{line}" for line in out.getvalue().splitlines(keepends=True))
