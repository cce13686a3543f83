"""Where things are in every sandbox of every backend."""

WORKDIR = "/sandbox"
"""Where code starts and where its files are."""

HOME = "/home"
"""Writable, and not where the code's own files are."""

FIGURES = f"{HOME}/figures"
LIBRARIES = f"{HOME}/libraries"
"""Where runners write figures, and where each language's libraries are installed, in a folder of its own."""

HANDLERS = "/opt/handlers"
ENVIRONMENTS = "/opt/environments"
TOOLS = "/opt/tools"
"""Where a sandbox sees the handler folders, the prepared environments and our own tools, read-only."""

PATH = "/usr/local/bin:/usr/bin:/bin"
