"""Lists of what is in a sandbox, as its own tools print them."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.backends.listing import FOLDER, Entry, Stamp, read_tree, tree_command


def listed(folder: Path) -> bytes:
    return subprocess.run(["sh", "-c", tree_command(str(folder))], capture_output=True, check=True).stdout


def test_a_list_has_everything_below_a_folder_but_hidden_names(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("a/b/x y", "a/two\nlines", "-rf", ".hidden", os.fsdecode(b"\xff")):
        (tmp_path / name).write_text("12345")
    (tmp_path / "link").symlink_to("a")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "-rf").chmod(0o4711)
    found = read_tree(listed(tmp_path)) or {}
    kinds = {
        "a": "d",
        "a/b": "d",
        "a/b/x y": "f",
        "a/two\nlines": "f",
        "-rf": "f",
        "\udcff": "f",
        "link": "l",
        "pipe": "p",
    }
    assert {name: entry.kind for name, entry in found.items()} == kinds
    assert found["a"] == FOLDER
    state = (tmp_path / "-rf").stat()
    assert found["-rf"] == Entry("f", 0o4711, Stamp.of(state))


@pytest.mark.parametrize("cut", [0, 1, 5, 20])
def test_a_list_that_is_not_whole_is_no_list(tmp_path: Path, cut: int) -> None:
    (tmp_path / "file").write_text("")
    whole = listed(tmp_path)
    assert read_tree(whole) is not None
    assert read_tree(whole[: len(whole) - 1 - cut]) is None
    assert read_tree(whole + b"x") is None
    assert read_tree(whole.replace(b"0 end", b"1 end")) is None


@given(st.binary(max_size=200))
def test_no_output_makes_reading_fail(output: bytes) -> None:
    for data in (output, output + b"\0000 end\0"):
        assert isinstance(read_tree(data), dict | None)
