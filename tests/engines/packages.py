"""Installs programs that engines need from Debian packages."""

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from .daemon import Unusable

_SYSTEM_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def install(programs: Mapping[str, str], *options: str) -> None:
    """Installs the packages of the programs that are missing here; `options` are passed to apt-get."""
    missing = {package for program, package in programs.items() if not shutil.which(program, path=_SYSTEM_PATH)}
    if not missing:
        return
    names = sorted(missing)
    print(f"apt-get install {' '.join(names)}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-qq", "--no-install-recommends", *names]):
        done = subprocess.run(["apt-get", *options, *command], env=environment, capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise Unusable(f"apt-get {command[0]} failed: {' '.join(last)}")


def install_where_possible(programs: Mapping[str, str]) -> None:
    """Installs each program separately, also from Debian's backports, without adding them to the machine's sources.

    Tests of a program that cannot be installed are skipped.
    """
    for program, package in programs.items():
        try:
            with _backports() as options:
                install({program: package}, *options)
        except Unusable as error:
            print(f"{program}: not installed: {error}", flush=True)


def mirror() -> list[str]:
    """The address that this machine's packages come from, as a list; empty when it is not known."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian"]
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    return lines[:1]


@contextmanager
def _backports() -> Iterator[list[str]]:
    """Options for apt-get with separate sources and package lists."""
    suite = platform.freedesktop_os_release().get("VERSION_CODENAME", "stable")
    address = next(iter(mirror()), "http://deb.debian.org/debian")
    signed = "signed-by=/usr/share/keyrings/debian-archive-keyring.gpg"
    with tempfile.TemporaryDirectory(prefix="sandbox-tests-apt-") as folder:
        # apt-get reads it as another user.
        Path(folder).chmod(0o755)
        Path(folder, "lists/partial").mkdir(parents=True)
        sources = Path(folder, "sources.list")
        sources.write_text("".join(f"deb [{signed}] {address} {name} main\n" for name in (suite, f"{suite}-backports")))
        yield [
            f"-oDir::Etc::SourceList={sources}",
            "-oDir::Etc::SourceParts=-",
            f"-oDir::State::Lists={folder}/lists",
            f"-oAPT::Default-Release={suite}-backports",
        ]
