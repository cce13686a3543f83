"""Waits, with modules imported, until this interpreter is forked for a sandbox; see `handlers/README.md`."""

from __future__ import annotations

import os
import stat
import sys

_CONTROL = 3
_ZYGOTE = "/opt/zygote.py"
_INFO = ".dist-info"
_NAMED = 5


def wait() -> None:
    """Returns at once in an interpreter that is started for a sandbox, and in each fork for one."""
    try:
        if not stat.S_ISSOCK(os.fstat(_CONTROL).st_mode):
            return
    except OSError:
        return
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("sandbox_forks", _ZYGOTE)
    zygote = module_from_spec(spec)
    spec.loader.exec_module(zygote)
    installed = _Installed()
    zygote.serve(_prepare, installed.changed)
    _seed()


def _prepare(modules: list) -> str:
    """Imports modules; returns the reason why this process must not be forked, if there is one."""
    from sandbox_preload import preload

    for name in modules:
        report = preload(name)
        if not report.startswith('{"memory"') or '"starts":""' not in report:
            return f"importing {name} says {report}"
    return ""


class _Installed:
    """The libraries on disk as they were when they were imported."""

    def __init__(self) -> None:
        self._stamps = {path: _stamp(path) for path in sys.path}
        self._names = {path: _libraries(path) for path in sys.path}

    def changed(self) -> str:
        """Which of them have changed since; nothing if none has."""
        for path, known in self._stamps.items():
            stamp = _stamp(path)
            if stamp != known:
                names = sorted(_libraries(path) ^ self._names[path])[:_NAMED]
                if names:
                    return f"libraries have changed on disk: {', '.join(names)}"
                self._stamps[path] = stamp  # something else has, such as the folder with their bytecode
        return ""


def _stamp(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _libraries(path: str) -> set:
    try:
        return {name[: -len(_INFO)] for name in os.listdir(path) if name.endswith(_INFO)}
    except OSError:
        return set()


def _seed() -> None:
    """Gives this fork random numbers of its own where a library would not: numpy's old generator has one state."""
    random = sys.modules.get("numpy.random.mtrand")
    if random is not None:
        import numpy

        kind, keys, *_ = random.get_state()
        random.set_state((kind, numpy.frombuffer(os.urandom(keys.nbytes), keys.dtype), len(keys)))
