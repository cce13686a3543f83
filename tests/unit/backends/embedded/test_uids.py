"""The uids that are lent to an ordinary user, and the errors when there are none."""

import os
import pwd
from pathlib import Path

import pytest

from llm_sandbox_mcp.backends.embedded.uids import MOST, Lent, NotLent, lent

NAME = pwd.getpwuid(os.geteuid()).pw_name
NUMBER = os.geteuid()


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("newuidmap", "newgidmap"):
        (folder / name).touch(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return folder


def of(folder: Path, uids: str, gids: str) -> Lent:
    lists = (folder / "subuid", folder / "subgid")
    for path, text in zip(lists, (uids, gids), strict=True):
        path.write_text(text)
    return lent(tuple(map(str, lists)))


def test_the_first_range_of_the_user_counts_by_name_or_number(tmp_path: Path) -> None:
    uids = f"# lent\nsomebody-else:1:5\n{NAME}:100000:70000\n{NAME}:300000:9\n"
    assert of(tmp_path, uids, f"{NUMBER}:200000:70000\n") == Lent(100_000, 200_000, MOST)


def test_the_smaller_range_of_uids_and_gids_gives_the_count(tmp_path: Path) -> None:
    assert of(tmp_path, f"{NAME}:100000:7", f"{NAME}:100000:5").count == 5


@pytest.mark.parametrize("line", ["", "nobody-such:1:5", "{}:x:5", "{}:1", "{}", "{}:1:2:3", "{}:-1:5", "{}:100000:0"])
def test_if_nothing_is_lent_the_error_gives_the_next_step(tmp_path: Path, line: str) -> None:
    line = line.format(NAME)
    with pytest.raises(NotLent, match=rf"subuid lends nothing to {NAME}', 'sudo usermod --add-subuids .* {NAME}'"):
        of(tmp_path, line, f"{NAME}:1:5")
    with pytest.raises(NotLent, match=rf"subgid lends nothing to {NAME}', 'sudo usermod"):
        of(tmp_path, f"{NAME}:1:5", line)


def test_a_missing_list_lends_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotLent, match="none lends nothing"):
        lent((str(tmp_path / "none"), str(tmp_path / "none")))


@pytest.mark.parametrize("name", ["newuidmap", "newgidmap"])
def test_if_a_program_is_missing_the_error_names_its_package(tmp_path: Path, programs: Path, name: str) -> None:
    (programs / name).unlink()
    with pytest.raises(NotLent, match=f"{name} is not on PATH', 'install it, on Debian with: .* uidmap'"):
        of(tmp_path, f"{NAME}:1:5", f"{NAME}:1:5")
