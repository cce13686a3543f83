"""`client-config --write` offers to prepare libraries: a person in a terminal is asked, everybody else gets the command."""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines import host_folder
from tests.local_index import LocalIndex, local_index, wheel

from .command import ARGV, LIMIT, command
from .terminals import in_a_terminal, shown

PROFILE = """
[server]
runtime = "{folder}/runtime"
cache = "{folder}/cache"
[languages.python]
libraries = [{libraries}]
index = "{index}/simple"
"""


@pytest.fixture
def index() -> Iterator[LocalIndex]:
    with local_index() as serving:
        serving.add_project("tiny", wheel("tiny"), serving)
        yield serving


@pytest.fixture
def folder() -> Iterator[Path]:
    with host_folder() as folder:
        yield folder


def asking(folder: Path, index: LocalIndex, libraries: str = '"tiny"', more: str = "") -> list[str]:
    """The arguments that write a host's file, with a profile that has these libraries."""
    (folder / "own.toml").write_text(PROFILE.format(folder=folder, libraries=libraries, index=index.url) + more)
    return ["client-config", "cursor", "--write", "--file", f"{folder}/mcp.json", "--profile", f"{folder}/own.toml"]


def test_without_a_terminal_the_last_line_names_the_command_until_they_are_there(
    folder: Path, index: LocalIndex
) -> None:
    arguments = asking(folder, index)
    *_, last = command(*arguments).stderr.splitlines()
    words, _, line = last.partition("; to do that now: ")
    assert words == "the libraries of python are prepared at the first start, which takes about a minute"
    named = shlex.split(line)
    assert named[-4:] == ["prepare", "python", "--profile", f"{folder}/own.toml"]
    assert command(*named[-4:]).returncode == 0
    assert len(command(*arguments).stderr.splitlines()) == 1


@pytest.mark.parametrize(("libraries", "more"), [("", ""), ('"tiny"', '[backend]\nname = "docker"')])
def test_where_nothing_is_prepared_on_this_machine_nothing_is_offered(
    folder: Path, index: LocalIndex, libraries: str, more: str
) -> None:
    done = command(*asking(folder, index, libraries, more))
    assert done.returncode == 0 and len(done.stderr.splitlines()) == 1, done


def test_a_person_is_asked_and_return_means_yes(folder: Path, index: LocalIndex) -> None:
    with in_a_terminal([*ARGV, *asking(folder, index)]) as (keyboard, process):
        shown(keyboard, rb"prepare them now\? \[Y/n\] ")
        os.write(keyboard, b"\n")
        shown(keyboard, rb"python +ready +[\d.]+ s")
        assert process.wait(LIMIT) == 0
    assert [*(folder / "cache/environments").glob("python-*/*/lib/python*/site-packages/tiny.py")]


def test_a_person_who_says_no_gets_the_command(folder: Path, index: LocalIndex) -> None:
    with in_a_terminal([*ARGV, *asking(folder, index)]) as (keyboard, process):
        shown(keyboard, rb"\[Y/n\] ")
        os.write(keyboard, b"n\n")
        shown(keyboard, rb"to do that now: .* prepare python ")
        assert process.wait(LIMIT) == 0
    assert not (folder / "cache").exists()
