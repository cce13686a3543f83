"""The paths in every sandbox, the same for every backend."""

WORKDIR = "/sandbox"
"""The working directory: code starts here, and its files are here."""

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
