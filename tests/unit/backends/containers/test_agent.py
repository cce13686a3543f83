"""The archive of handlers: its digest is that of the names and the content of their files, and of nothing else."""

import io
import os
import tarfile
from pathlib import Path

from llm_sandbox_mcp.backends.containers.agent import Packed, pack_handlers


def packed(folder: Path, **files: str) -> Packed:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).mkdir()
        (folder / name / "runner.sh").write_text(text)
    return pack_handlers({name: folder / name for name in files})


def test_the_same_handlers_have_the_same_digest_on_every_machine(tmp_path: Path) -> None:
    one = packed(tmp_path / "one", bash="echo", sh="exit")
    other = packed(tmp_path / "other", sh="exit", bash="echo")
    os.utime(tmp_path / "other/sh/runner.sh", (0, 0))
    (tmp_path / "other/bash/runner.sh").chmod(0o600)
    (tmp_path / "other/bash/__pycache__").mkdir()
    assert one == other == pack_handlers({name: tmp_path / "other" / name for name in ("bash", "sh")})


def test_handlers_of_other_names_or_content_have_other_digests(tmp_path: Path) -> None:
    made = [packed(tmp_path / "one", bash="echo"), packed(tmp_path / "two", bash="exit"), packed(tmp_path / "three")]
    made.append(packed(tmp_path / "four", sh="echo"))
    assert len({one.name for one in made}) == 4


def test_the_archive_has_the_files(tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(packed(tmp_path / "one", bash="echo").archive)) as archive:
        assert archive.getnames() == ["bash", "bash/runner.sh"]
