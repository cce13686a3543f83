"""Where things are: the folders that come along, and those that the server keeps on this machine."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_NAME = "llm-sandbox-mcp"


def _find(name: str) -> Path:
    """Inside the installed package, or beside it in a checkout."""
    packaged = _PACKAGE / name
    return packaged if packaged.is_dir() else _PACKAGE.parent / name


HANDLERS = _find("handlers")
CONFIGS = _find("configs")


@dataclass(frozen=True, slots=True)
class HostFolders:
    """Folders of this machine that belong to this package."""

    cache: Path
    """Prepared environments, shared by all servers and kept."""
    runtime: Path
    """One folder for each running server."""


def host_folders(cache: str = "", runtime: str = "", environ: Mapping[str, str] | None = None) -> HostFolders:
    """The folders that were set, or the usual ones.

    Those of root are outside of its home, since sandboxes run as uids that cannot go there.
    """
    environ = environ or {}
    if os.geteuid() == 0:
        usual_cache, usual_runtime = Path("/var/cache", _NAME), Path("/run", _NAME)
    else:
        usual_cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", _NAME)
        usual_runtime = Path(environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir(), f"{_NAME}-{os.geteuid()}")
    return HostFolders(Path(cache) if cache else usual_cache, Path(runtime) if runtime else usual_runtime)
