"""Folders: those that are included in this package, and those that the server keeps on this machine."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_NAME = "llm-sandbox-mcp"


def _find(name: str) -> Path:
    """The folder inside the installed package, or next to the package in a checkout."""
    packaged = _PACKAGE / name
    return packaged if packaged.is_dir() else _PACKAGE.parent / name


HANDLERS = _find("handlers")
CONFIGS = _find("configs")


@dataclass(frozen=True, slots=True)
class HostFolders:
    """Folders of this machine that belong to this package."""

    cache: Path
    """Prepared environments, shared by all servers and kept when they end."""
    runtime: Path
    """One folder for each running server."""
    sessions: Path
    """Saved sessions, if the profile names no other place."""


def host_folders(cache: str = "", runtime: str = "", environ: Mapping[str, str] | None = None) -> HostFolders:
    """The folders that were set, or the default ones.

    For root they are outside its home, since sandboxes run as uids that cannot enter it.
    """
    environ = environ or {}
    if os.geteuid() == 0:
        default_cache, default_runtime, state = Path("/var/cache", _NAME), Path("/run", _NAME), Path("/var/lib")
    else:
        default_cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", _NAME)
        default_runtime = Path(environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir(), f"{_NAME}-{os.geteuid()}")
        state = Path(environ.get("XDG_STATE_HOME") or Path.home() / ".local/state")
    return HostFolders(
        Path(cache) if cache else default_cache,
        Path(runtime) if runtime else default_runtime,
        state / _NAME / "sessions",
    )


def can_be_used(folder: Path) -> bool:
    """Whether this process can write files in the folder, after making it if it does not exist."""
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
