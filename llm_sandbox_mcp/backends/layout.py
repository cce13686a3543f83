"""The paths in every sandbox, the same for every backend."""

from collections.abc import Iterable

WORKDIR = "/sandbox"
"""The working directory: code starts here, and its files are here."""

ALIAS = "/mnt/data"
ALIAS_FOLDER = "/mnt"
"""Another name of the working directory, which models often use: a link; and the folder that contains only the link."""

HOME = "/home"
"""The home directory; writable, and separate from the code's own files."""

FIGURES = f"{HOME}/figures"
LIBRARIES = f"{HOME}/libraries"
"""Where runners write figures, and where libraries are installed, with one folder per language."""

DATA = "/data"
"""Where the folders are that the operator opened, each under its own name; only there if at least one is open."""

HANDLERS = "/opt/handlers"
ENVIRONMENTS = "/opt/environments"
TOOLS = "/opt/tools"
"""Where a sandbox sees the handler folders, the prepared environments and our own tools; all read-only."""

PATH = "/usr/local/bin:/usr/bin:/bin"


def alias_beside(mounts: Iterable[str]) -> str:
    """`ALIAS`, if none of an operator's own mounts is at its folder or below it; else nothing."""
    taken = any(f"{place.rstrip('/')}/".startswith(f"{ALIAS_FOLDER}/") for place in mounts)
    return "" if taken else ALIAS
