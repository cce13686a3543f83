"""Repositories of git for the tests, and git itself for sandboxes that lack it."""

import os
import re
import shutil
import subprocess
from pathlib import Path

STATUS = " M changed\n?? new\n"
COMMANDS = {
    "status --porcelain": STATUS,
    "log --format=%an:%s": "Somebody:second\nSomebody:first\n",
    "diff": "+one\n+more\n",
    "show --stat --oneline --format=%s HEAD": "second\n",
    "config --get remote.origin.url": "https://host.example/project.git\n",
}
"""What git prints, or the lines of it that are looked at."""


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=Somebody", "-c", "user.email=somebody@host.example")
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", "-C", folder, *identity, *words], env=environ, check=True, capture_output=True)


def make_repository(folder: Path) -> None:
    """Two commits, a changed file and a new one; `changed` also has another time than the index knows."""
    git(folder, "init", "-q")
    git(folder, "remote", "add", "origin", "https://host.example/project.git")
    for subject, text in (("first", ""), ("second", "zero\n")):
        (folder / "changed").write_text(text)
        (folder / "same").write_text("same\n")
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", subject)
    (folder / "changed").write_text("zero\none\nmore\n")
    (folder / "new").write_text("new\n")
    # Git would update its index for this file, if it could.
    os.utime(folder / "same", (1, 1))


def state(folder: Path) -> dict[str, object]:
    """All that an operation could have changed."""
    found: dict[str, object] = {}
    for path in (folder, *folder.rglob("*")):
        seen = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (seen.st_mode, seen.st_size, seen.st_ino, seen.st_mtime_ns, seen.st_ctime_ns, content)
    return found


def copy_git(folder: Path) -> str:
    """Puts this machine's git and its libraries into a folder; returns the name of the program that loads them."""
    program = shutil.which("git", path="/usr/bin")
    assert program
    listed = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    files = [Path(name) for name in re.findall(r"\s(/\S+) \(", listed)]
    for file in (Path(program), *files):
        shutil.copy(file, folder)
    (loader,) = (file.name for file in files if file.name.startswith("ld-"))
    return loader
