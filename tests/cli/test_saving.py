"""Files that `run --artifacts` saves: their names come from code in a sandbox."""

from pathlib import Path

import pytest

from llm_sandbox_mcp.base.errors import BadPath
from llm_sandbox_mcp.cli.saving import save


def test_a_file_is_written_below_the_folder_and_replaces_an_older_one(tmp_path: Path) -> None:
    for content in (b"old and long", b"new"):
        save(tmp_path / "out", "a/b/c.txt", content)
    assert [path.name for path in (tmp_path / "out/a/b").iterdir()] == ["c.txt"]
    assert (tmp_path / "out/a/b/c.txt").read_bytes() == b"new"
    assert (tmp_path / "out/a/b/c.txt").stat().st_mode & 0o111 == 0


@pytest.mark.parametrize("name", ["../x", "a/../x", "/etc/x", "", "a//b", "a/", ".git/hooks/x", "a/.env", "x\0"])
def test_a_name_that_leads_outside_or_is_hidden_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadPath, match="was not saved"):
        save(tmp_path / "out", name, b"")
    assert not list(tmp_path.iterdir())


def test_no_link_below_the_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "victim").write_text("kept")
    out = tmp_path / "out"
    out.mkdir()
    (out / "folder").symlink_to(tmp_path / "elsewhere")
    (out / "file").symlink_to(tmp_path / "victim")
    with pytest.raises(BadPath, match="was not saved"):
        save(out, "folder/x", b"")
    with pytest.raises(BadPath, match="is a link, a pipe, a device or a folder there, and is not replaced"):
        save(out, "file", b"new")
    assert (tmp_path / "victim").read_text() == "kept"
    assert (out / "file").is_symlink()


def test_a_folder_with_the_name_of_a_file_is_an_error_that_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "name").mkdir()
    with pytest.raises(BadPath, match="was not saved"):
        save(tmp_path, "name", b"")
    assert [path.name for path in tmp_path.iterdir()] == ["name"]
