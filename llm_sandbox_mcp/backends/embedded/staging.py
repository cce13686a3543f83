"""Copies what every sandbox of a server sees of the host, once, to a folder that a sandbox of any uid can read."""

import os
import platform
import shutil
from collections.abc import Mapping
from compileall import compile_dir
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode

from ...base.errors import EngineUnavailable
from .. import bpf, calls
from ..layout import HANDLERS
from .becoming import SECCOMP, ZYGOTE_SECCOMP
from .etc import RESOLVING, write_etc
from .terminals import FOLDER


@dataclass(frozen=True, slots=True)
class Stage:
    """The staged files."""

    path: Path

    @property
    def etc(self) -> Path:
        return self.path / "etc"

    @property
    def resolving(self) -> Path:
        return self.path / "resolving"

    @property
    def empty(self) -> Path:
        return self.path / "empty"

    @property
    def handlers(self) -> Path:
        return self.path / "handlers"

    @property
    def init(self) -> Path:
        return self.path / "init.py"

    @property
    def zygote(self) -> Path:
        return self.path / "zygote.py"

    @property
    def terminals(self) -> Path:
        return self.path / FOLDER

    @property
    def seccomp(self) -> Path:
        return self.path / SECCOMP


def write_stage(path: Path, handlers: Mapping[str, Path]) -> Stage:
    """Copies handlers and PID 1, and generates files; an unprivileged uid may be unable to reach the package's folder.

    Raises `EngineUnavailable` when the disk is full or the folder cannot be written.
    """
    stage = Stage(path)
    try:
        path.mkdir()
        stage.etc.mkdir()
        write_etc(stage.etc)
        stage.resolving.mkdir()
        for name, text in RESOLVING.items():
            (stage.resolving / name).write_text(text)
        stage.terminals.mkdir()
        stage.empty.mkdir()
        stage.handlers.mkdir()
        for name, folder in handlers.items():
            shutil.copytree(folder, stage.handlers / name, ignore=shutil.ignore_patterns("__pycache__", "selftest"))
        _compile(stage.handlers)
        for script in (stage.init, stage.zygote):
            shutil.copyfile(Path(__file__).with_name(script.name), script)
        stage.seccomp.write_bytes(bpf.program(platform.machine()))
        (path / ZYGOTE_SECCOMP).write_bytes(bpf.program(platform.machine(), calls.FOR_ZYGOTES))
        _make_readable(path)
    except (OSError, ValueError) as error:
        raise EngineUnavailable(
            f"cannot prepare {path}: {error}", "set server.runtime in the profile to a writable folder"
        ) from error
    return stage


def _compile(handlers: Path) -> None:
    """Compiles the Python files once for all sandboxes; interpreters of other versions compile them in each sandbox."""
    # The files do not change any more, so Python need not compare their times.
    unchecked = PycInvalidationMode.UNCHECKED_HASH
    compile_dir(handlers, quiet=2, stripdir=handlers, prependdir=HANDLERS, invalidation_mode=unchecked)


def _make_readable(root: Path) -> None:
    for folder, _, files in os.walk(root):
        os.chmod(folder, 0o755)
        for name in files:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                os.chmod(path, 0o644)
