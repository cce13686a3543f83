"""What every sandbox of a server sees of the host, copied once to where a sandbox of any uid can read it."""

import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import EngineUnavailable
from . import seccomp
from .etc import write_etc


@dataclass(frozen=True, slots=True)
class Stage:
    """The staged files."""

    path: Path

    @property
    def etc(self) -> Path:
        return self.path / "etc"

    @property
    def handlers(self) -> Path:
        return self.path / "handlers"

    @property
    def init(self) -> Path:
        return self.path / "init.py"

    @property
    def seccomp(self) -> Path:
        return self.path / "seccomp.bpf"


def write_stage(path: Path, handlers: Mapping[str, Path]) -> Stage:
    """Copies handlers, PID 1 and the generated files; the package may lie where an unprivileged uid cannot go.

    Raises `EngineUnavailable` when the disk is full or the folder cannot be written.
    """
    stage = Stage(path)
    try:
        path.mkdir()
        stage.etc.mkdir()
        write_etc(stage.etc)
        stage.handlers.mkdir()
        for name, folder in handlers.items():
            shutil.copytree(folder, stage.handlers / name, ignore=shutil.ignore_patterns("__pycache__", "selftest"))
        shutil.copyfile(Path(__file__).with_name("init.py"), stage.init)
        stage.seccomp.write_bytes(seccomp.program(platform.machine()))
        _make_readable(path)
    except (OSError, ValueError) as error:
        raise EngineUnavailable(f"cannot prepare {path}: {error}; set embedded.runtime in the profile") from error
    return stage


def _make_readable(root: Path) -> None:
    for folder, _, files in os.walk(root):
        os.chmod(folder, 0o755)
        for name in files:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                os.chmod(path, 0o644)
