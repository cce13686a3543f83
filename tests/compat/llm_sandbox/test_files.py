"""Copying files and folders between this machine and a session."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from llm_sandbox_mcp import (
    SandboxSession,
    SecurityError,
    ValidationError,
)
from tests.compat.llm_sandbox.conftest import PROFILE

pytestmark = pytest.mark.usefixtures("library")


def test_files_and_folders_are_copied_also_empty_files(tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "bytes").write_bytes(bytes(range(256)))
    (tmp_path / "in" / "empty").touch()
    with SandboxSession() as session:
        session.copy_to_runtime(tmp_path / "in", "/sandbox/there")
        session.copy_to_runtime(tmp_path / "in" / "empty", "one/empty")
        assert (
            session.execute_command("find . -type f | sort").stdout
            == "./one/empty\n./there/deep/bytes\n./there/empty\n"
        )
        session.copy_from_runtime("/sandbox/there", tmp_path / "out")
        session.copy_from_runtime("one/empty", tmp_path / "new" / "empty")
        session.copy_from_runtime("/sandbox", tmp_path / "all")
        archive, known = session.get_archive("there/deep/bytes")
    assert (tmp_path / "out" / "there" / "deep" / "bytes").read_bytes() == bytes(range(256))
    assert (tmp_path / "new" / "empty").read_bytes() == b""
    all_of_it = [path.relative_to(tmp_path / "all") for path in (tmp_path / "all").rglob("*") if path.is_file()]
    assert sorted(map(str, all_of_it)) == [
        f"sandbox/{name}" for name in ("one/empty", "there/deep/bytes", "there/empty")
    ]
    assert (known["name"], known["size"]) == ("bytes", 256)
    with tarfile.open(fileobj=io.BytesIO(archive)) as reader:
        assert reader.getnames() == ["bytes"]


def test_execute_bits_and_empty_folders_are_copied_and_the_working_directory_can_be_the_target(tmp_path: Path) -> None:
    (tmp_path / "in" / "deep" / "empty").mkdir(parents=True)
    (tmp_path / "in" / "script").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "in" / "script").chmod(0o700)
    (tmp_path / "in" / "text").touch(0o600)
    with SandboxSession() as session:
        for _ in range(2):
            session.copy_to_runtime(tmp_path / "in", "/sandbox")
        assert session.execute_command("find . -mindepth 1 | sort").stdout == "./deep\n./deep/empty\n./script\n./text\n"
        assert session.execute_command("./script && ! test -x text").stdout == "ran\n"
        session.copy_from_runtime("script", tmp_path / "script")
        session.copy_from_runtime("/sandbox", tmp_path / "out")
    for script in (tmp_path / "script", tmp_path / "out" / "sandbox" / "script"):
        assert script.stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "out" / "sandbox" / "deep" / "empty").is_dir()


def test_a_file_that_fits_a_sandbox_can_be_copied_out_whatever_the_limit_on_artifacts(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "small.toml").write_text(PROFILE.format(folder=folder) + "[artifacts]\nfile_size = '64KiB'\n")
    monkeypatch.setenv("LLM_SANDBOX_PROFILE", str(folder / "small.toml"))
    with SandboxSession() as session:
        session.run("open('large', 'wb').write(bytes(12 << 20))")  # most of limits.disk: a second copy does not fit
        session.copy_from_runtime("large", tmp_path / "large")
        assert session.execute_command("ls -A").stdout == "large\n"
        session.execute_command("for n in 1 2 3; do truncate -s 16M holes$n; done")
        with pytest.raises(ValidationError, match=r"'/sandbox' has more than 32MiB, twice limits\.disk"):
            session.copy_from_runtime("/sandbox", tmp_path / "all")
    assert (tmp_path / "large").stat().st_size == 12 << 20


def test_a_failed_copy_names_the_reason(tmp_path: Path) -> None:
    with SandboxSession() as session:
        with pytest.raises(FileNotFoundError):
            session.copy_to_runtime(tmp_path / "none", "x")
        with pytest.raises(FileNotFoundError, match="none"):
            session.copy_from_runtime("none", tmp_path / "x")
        with pytest.raises(FileNotFoundError, match=r"'/sandbox/none/x' .* No such file"):
            session.get_archive("none/x")
        with pytest.raises(SecurityError):
            session.copy_to_runtime(__file__, "../x")
        for outside in ("/etc/x", "/tmp/x", "/home/x", "/container/path/x", "/sandboxes/x"):
            with pytest.raises(ValidationError, match=f"'{outside}' is not below /sandbox.* execute_command"):
                session.copy_to_runtime(__file__, outside)
            with pytest.raises(ValidationError, match=f"'{outside}' is not below /sandbox.* execute_command"):
                session.copy_from_runtime(outside, tmp_path / "x")
        with pytest.raises(ValidationError, match="'/sandbox' does not name a file"):
            session.copy_to_runtime(__file__, "/sandbox")
        session.run("import os\nopen('shut', 'w').close()\nos.chmod('shut', 0)")
        with pytest.raises(ValidationError, match=r"'/sandbox/shut' cannot be read: .*Permission denied"):
            session.copy_from_runtime("shut", tmp_path / "x")
        session.execute_command("rm -f shut")
        assert session.execute_command("ls -A").stdout == ""


def test_link_targets_on_this_machine_are_copied_and_loops_and_special_files_are_an_error(
    tmp_path: Path,
) -> None:
    (tmp_path / "in" / "lib").mkdir(parents=True)
    (tmp_path / "in" / "lib" / "file").write_text("content")
    (tmp_path / "in" / "lib64").symlink_to("lib")
    with SandboxSession() as session:
        session.copy_to_runtime(tmp_path / "in", "in")
        assert session.execute_command("cat in/lib64/file; test ! -L in/lib64").stdout == "content"
        os.mkfifo(tmp_path / "in" / "pipe")
        for pipe in (tmp_path / "in" / "pipe", tmp_path / "in", Path("/dev/null")):
            with pytest.raises(ValidationError, match="neither a file nor a folder"):
                session.copy_to_runtime(pipe, "x")
        (tmp_path / "in" / "pipe").unlink()
        for target in ("..", "../lib", "../../in"):
            (tmp_path / "in" / "lib" / "loop").symlink_to(target)
            with pytest.raises(ValidationError, match="/loop is a link to a folder that contains it"):
                session.copy_to_runtime(tmp_path / "in", "x")
            (tmp_path / "in" / "lib" / "loop").unlink()
        (tmp_path / "in" / "there").symlink_to(tmp_path / "other")
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "back").symlink_to(tmp_path / "in")
        with pytest.raises(ValidationError, match="/back is a link to a folder that contains it"):
            session.copy_to_runtime(tmp_path / "in", "x")
        assert session.execute_command("ls").stdout == "in\n"


def test_links_that_lead_out_of_a_sandbox_folder_are_not_followed_on_this_machine(tmp_path: Path) -> None:
    with SandboxSession() as session:
        session.run("import os\nos.mkdir('d')\nos.symlink('/etc/passwd', 'd/link')\nopen('d/file', 'w').close()")
        session.copy_from_runtime("d", tmp_path)
    assert [path.name for path in (tmp_path / "d").iterdir()] == ["file"]
