"""`llm-sandbox-mcp completion`. shtab makes the script from the parser; here is what it completes beyond commands."""

import argparse
import sys
from collections.abc import Iterator, Mapping

import shtab

from ..host.folders import CONFIGS, HANDLERS
from .client_config.hosts import host_names
from .parser import build

_PROFILES = "_llm_sandbox_mcp_profile_files"
"""The function that completes profiles; if it did not end so, Bash would not add slashes to folders."""


def main(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Prints the script that a shell reads to complete commands, options, files, and names of profiles and clients."""
    parser = build()
    for action in _actions(parser):
        _complete(action)
    sys.stdout.write(f"{shtab.complete(parser, options.shell)}\n")
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments of a parser and of the parsers of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _actions(below)


def _complete(action: argparse.Action) -> None:
    """Tells shtab what an argument can be: its attribute `complete`, or a list of choices."""
    match action.dest:
        case "profile":
            vars(action)["complete"] = _profiles()
        case "source" | "stdin" | "files" | "file":
            vars(action)["complete"] = shtab.FILE
        case "artifacts" | "folders":
            vars(action)["complete"] = shtab.DIRECTORY
        case "client":
            action.choices = host_names()
        case "language":
            action.choices = sorted(path.parent.name for path in HANDLERS.glob("*/handler.toml"))
    if isinstance(action.metavar, str):
        action.metavar = action.metavar.replace(":", r"\:")  # colons separate the parts of an argument in zsh


def _profiles() -> Mapping[str, object]:
    """Profiles: the names of ours, and TOML files."""
    names = " ".join(sorted(path.stem for path in CONFIGS.glob("*.toml")))
    return {
        "bash": _PROFILES,
        "zsh": _PROFILES,
        "fish": f"({_PROFILES})",
        "preamble": {
            "bash": f"""\
{_PROFILES}() {{
  compgen -W "{names}" -- "$1"
  compgen -f -X "!*.toml" -- "$1"
  compgen -d -- "$1"
}}""",
            "zsh": f"""\
{_PROFILES}() {{
  _alternative "names:profile:({names})" "files:file:_files -g '*.toml'"
}}""",
            "fish": f"""\
function {_PROFILES}
  printf "%s\\n" {names}
  __fish_complete_suffix .toml
end""",
        },
    }
