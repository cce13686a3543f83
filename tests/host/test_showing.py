"""Which of the operator's folders are mounted into sandboxes on bubblewrap, and that a mount shows them as they are."""

import os
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.backends.embedded.showing import Mountable
from llm_sandbox_mcp.base.open_folders import OpenFolder, View
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.engines import host_folder, small_profile

pytestmark = pytest.mark.anyio


def view(path: Path, *, writable: bool = False) -> View:
    return View("/data/data", OpenFolder(str(path), writable))


def test_a_folder_that_others_can_read_is_mounted(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "link").symlink_to("/dev/log")
    found = Mountable.find(view(tmp_path))
    assert found is not None and found.current
    tmp_path.rename(tmp_path.with_name("elsewhere"))
    assert not found.current
    tmp_path.mkdir()
    assert not found.current


def test_folders_that_are_writable_or_private_or_gone_are_copied(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert Mountable.find(view(tmp_path, writable=True)) is None
    assert Mountable.find(view(tmp_path / "none")) is None
    tmp_path.chmod(0o750)
    assert Mountable.find(view(tmp_path)) is None


@pytest.mark.parametrize(("mode", "mounted"), [(0o777, False), (0o700, True)])
@pytest.mark.parametrize("kind", ["socket", "pipe"])
def test_a_folder_with_a_socket_or_pipe_for_others_is_copied(
    tmp_path: Path, kind: str, mode: int, mounted: bool
) -> None:
    tmp_path.chmod(0o755)
    door = tmp_path / "deep" / "door"
    door.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        if kind == "pipe":
            os.mkfifo(door)
        else:
            server.bind(str(door))
        door.chmod(mode)
        assert (Mountable.find(view(tmp_path)) is not None) == mounted


SECRET = '[remote "origin"]\n\turl = https://user:pw@host.example/x\n'
SAFE = '[remote "origin"]\n\turl = https://host.example/x\n'


def with_config(folder: Path, name: str, text: str) -> Path:
    """A file with settings of git in a folder that others can read."""
    config = folder / name
    config.parent.mkdir(parents=True)
    folder.chmod(0o755)
    config.write_text(text)
    config.chmod(0o644)
    return config


@pytest.mark.parametrize(
    "name",
    [
        *(".git/config", ".git/config.worktree", "deep/er/.git/config", ".git/modules/a/b/config"),
        *(".git/worktrees/a/config.worktree", ".git/modules/logs/config"),
    ],
)
@pytest.mark.parametrize(("text", "mounted"), [(SAFE, True), (SECRET, False), ("[", False), ("#" * (1 << 20), True)])
def test_a_folder_with_a_repository_is_mounted_only_if_its_configs_have_no_secrets(
    tmp_path: Path, name: str, text: str, mounted: bool
) -> None:
    config = with_config(tmp_path, name, text)
    assert (Mountable.find(view(tmp_path)) is not None) == mounted
    config.write_text("#" * ((1 << 20) + 1))
    assert Mountable.find(view(tmp_path)) is None


def test_the_config_of_a_bare_repository_counts_but_not_other_files_of_that_name(tmp_path: Path) -> None:
    config = with_config(tmp_path, "project/config", SECRET)
    assert Mountable.find(view(tmp_path)) is not None
    config.with_name("HEAD").write_text("ref: refs/heads/main\n")
    assert Mountable.find(view(tmp_path)) is None
    assert Mountable.find(view(config.parent)) is None


def test_a_config_that_others_cannot_read_keeps_no_folder_from_being_mounted(tmp_path: Path) -> None:
    config = with_config(tmp_path, ".git/config", SECRET)
    config.chmod(0o640)
    assert Mountable.find(view(tmp_path)) is not None
    config.chmod(0o644)
    config.parent.chmod(0o700)
    assert Mountable.find(view(tmp_path)) is not None


def test_configs_that_are_links_are_not_followed_and_pipes_do_not_block(tmp_path: Path) -> None:
    outside = with_config(tmp_path / "outside", ".git/config", SECRET)
    inside = with_config(tmp_path / "inside", ".git/config", SAFE)
    inside.unlink()
    inside.symlink_to(outside)
    assert Mountable.find(view(tmp_path / "inside")) is not None
    inside.unlink()
    os.mkfifo(inside)
    inside.chmod(0o600)
    assert Mountable.find(view(tmp_path / "inside")) is not None
    inside.chmod(0o644)
    assert Mountable.find(view(tmp_path / "inside")) is None


def test_configs_are_found_among_many_other_files(tmp_path: Path) -> None:
    """More than are searched."""
    with_config(tmp_path, ".git/modules/a/config", SECRET)
    for name in ("first", "other", ".git/objects/ab", ".git/modules/a/refs"):
        (tmp_path / name).mkdir(parents=True)
        for number in range(6000):
            os.mknod(tmp_path / name / str(number))
    assert Mountable.find(view(tmp_path)) is None


@dataclass(frozen=True)
class Shown:
    """A service whose code sees a folder."""

    service: Service
    data: Path

    async def read(self, name: str, session_id: str = "") -> tuple[str | None, str]:
        """What code reads from a file of the folder, or the name of the error; and the session."""
        code = f"try:\n    text = open('/data/data/{name}').read()\nexcept OSError as error:\n    text = type(error).__name__\ntext"
        done = await execute(self.service, code, session_id=session_id)
        return done.result, done.session_id


@pytest.fixture
async def shown(embedded: None) -> AsyncIterator[Shown]:
    with host_folder() as folder, anyio.fail_after(60):
        data = folder / "data"
        data.mkdir()
        profile = small_profile("embedded", folder, files={"folders": [str(data)]}, pool={"min": 0})
        async with open_service(profile) as service:
            yield Shown(service, data)


async def test_code_sees_changes_of_a_mounted_folder_and_what_others_may_read(shown: Shown) -> None:
    found, session = await shown.read("late")
    assert found == "'FileNotFoundError'"
    (shown.data / "late").write_text("here")
    assert (await shown.read("late", session))[0] == "'here'"
    (shown.data / "newer").write_text("newer")
    (shown.data / "newer").replace(shown.data / "late")
    assert (await shown.read("late", session))[0] == "'newer'"
    (shown.data / "late").chmod(0o600)
    assert (await shown.read("late", session))[0] == "'PermissionError'"
    done = await execute(shown.service, "open('/data/data/late')", session_id=session)
    assert [note.code for note in done.notes] == ["private_file"]


async def test_code_that_writes_where_it_can_only_read_is_told_why(embedded: None) -> None:
    with host_folder() as folder, anyio.fail_after(60):
        for name in ("data", "own", "out"):
            with_config(folder / name, ".git/config", SAFE)
        (folder / "own").chmod(0o700)
        opened = [str(folder / "data"), str(folder / "own"), f"{folder}/out:rw"]
        async with open_service(
            small_profile("embedded", folder, files={"folders": opened}, pool={"min": 0})
        ) as service:
            for path, told in {
                "data/new": ["read_only_folder"],
                "own/new": ["read_only_folder"],
                "data/.git/new": ["read_only_repository"],
                "own/.git/new": ["read_only_repository"],
                "out/.git/new": ["read_only_repository"],
                "out/new": ["results_saved"],
            }.items():
                for language, code in (
                    ("bash", f"touch /data/{path}"),
                    ("python", f"open('/data/{path}', 'w').close()"),
                ):
                    done = await execute(service, code, language=language)
                    assert [note.code for note in done.notes] == told, (path, language, done)
                    (folder / "out" / "new").unlink(missing_ok=True)


async def test_a_folder_that_was_replaced_is_the_new_one_in_the_next_session(shown: Shown) -> None:
    (shown.data / "file").write_text("old")
    found, session = await shown.read("file")
    assert found == "'old'"
    shown.data.rename(shown.data.with_name("before"))
    shown.data.mkdir()
    (shown.data / "file").write_text("new")
    assert (await shown.read("file", session))[0] == "'old'"
    assert (await shown.read("file"))[0] == "'new'"


async def test_a_folder_with_the_password_of_a_remote_is_copied(embedded: None) -> None:
    with host_folder() as folder, anyio.fail_after(60):
        data = folder / "data"
        data.mkdir()
        with_config(data, ".git/config", SECRET)
        profile = small_profile("embedded", folder, files={"folders": [str(data)]}, pool={"min": 0})
        async with open_service(profile) as service:
            shown = Shown(service, data)
            (data / "late").write_text("here")
            assert (await shown.read("late"))[0] == "'here'"
            mounts = await execute(service, "grep -c ' /data/data ' /proc/self/mountinfo", language="bash")
            assert mounts.stdout.text == "0\n"
            found, _ = await shown.read(".git/config")
            assert found is not None and "pw" not in found
