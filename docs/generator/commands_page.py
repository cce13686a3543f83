"""The reference of the command line, from its parser: each command with its arguments and examples."""

import argparse
from collections.abc import Iterator

from llm_sandbox_mcp.cli.examples import EXAMPLES
from llm_sandbox_mcp.cli.parser import build

from .markdown import code, plain, table

_INTRODUCTION = """\
# Command line reference

Without a command, `llm-sandbox-mcp` serves MCP on stdio, as hosts expect. `llm-sandbox-mcp COMMAND --help` shows what
this page says about a command. [Command line](../command-line.md) explains exit codes, and servers on a port.
"""


def make_commands_page() -> str:
    """One section for each command."""
    parts = [_INTRODUCTION]
    for name, parser in _commands(build()):
        parts += [f"## {name}\n", f"{plain(parser.description or '')}\n"]
        if shown := sorted(filter(_is_shown, parser._actions), key=lambda action: bool(action.option_strings)):
            parts.append(table(("argument", "meaning"), map(_row, shown)))
        parts.append("\n".join(("```sh", *EXAMPLES[name], "```\n")))
    return "\n".join(parts)


def _commands(parser: argparse.ArgumentParser, above: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command that can be called, by its words after the program's name; first the one that contains others."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield f"{above}{name}", below
                yield from _commands(below, f"{above}{name} ")


def _is_shown(action: argparse.Action) -> bool:
    return not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)


def _row(action: argparse.Action) -> tuple[str, str]:
    value = action.metavar or "|".join(map(str, action.choices or ())) or action.dest.upper()
    if action.option_strings:
        called = action.option_strings[0] if action.nargs == 0 else f"{action.option_strings[0]} {value}"
    else:
        called = {"?": "[{}]", "*": "[{}...]", "+": "{}..."}.get(str(action.nargs), "{}").format(value)
    return code(called), plain((action.help or "") % {"default": action.default})
