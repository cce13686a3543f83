"""The examples with which the help text of each command ends. `tests/cli/test_examples.py` runs them."""

import argparse
import shlex
from collections.abc import Iterator

import pytest

from llm_sandbox_mcp.cli.examples import EXAMPLES
from llm_sandbox_mcp.cli.parser import build, parse

PROGRAM = "llm-sandbox-mcp"


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of all commands and of their actions."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield below
                yield from commands(below)


def called(line: str) -> str:
    """The command in a line for a shell."""
    return line.removeprefix('eval "$(').removesuffix(')"').removesuffix(" | source")


PARSERS = {parser.prog.removeprefix(f"{PROGRAM} "): parser for parser in commands(build())}


def test_every_command_has_examples() -> None:
    assert sorted(PARSERS) == sorted(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_help_text_ends_with_the_examples_one_to_a_line(name: str) -> None:
    lines = PARSERS[name].format_help().splitlines()
    assert lines[lines.index("examples:") :] == ["examples:", *(f"  {line}" for line in EXAMPLES[name])]


@pytest.mark.parametrize(("name", "line"), [(name, line) for name, lines in EXAMPLES.items() for line in lines])
def test_an_example_can_be_typed_and_is_one_of_its_command(name: str, line: str) -> None:
    assert called(line).startswith(f"{PROGRAM} {name}")
    assert parse(shlex.split(called(line))[1:]).module


def test_the_help_text_of_the_program_begins_with_what_a_person_needs() -> None:
    assert list(PARSERS)[:3] == ["client-config", "run", "doctor"]
