"""Unpacking archives that come from a sandbox."""

import io
import tarfile
from pathlib import Path

import pytest

from llm_sandbox_mcp.compat.llm_sandbox.copies import unpack
from llm_sandbox_mcp.compat.llm_sandbox.exceptions import SecurityError


def packed(*names: str) -> bytes:
    """An archive of files with these names; their owner may execute them and anyone may write them."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as writer:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(name), 0o4767
            writer.addfile(member, io.BytesIO(name.encode()))
    return archive.getvalue()


def test_files_and_folders_are_made_and_only_the_owner_may_write_them(tmp_path: Path) -> None:
    unpack(packed("d/one", "d/e/two"), tmp_path)
    for name in ("d/one", "d/e/two"):
        assert (tmp_path / name).read_text() == name
        assert (tmp_path / name).stat().st_mode & 0o7777 == 0o745


@pytest.mark.parametrize("name", ["../out", "d/../../out", "/out", "link/out"])
def test_a_path_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    with pytest.raises(SecurityError, match="leads out"):
        unpack(packed(name, "d/one"), folder)
    assert not (tmp_path / "out").exists()
