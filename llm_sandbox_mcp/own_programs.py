"""Modules of this package that run as a process of their own: with neither the server's environment nor its folder."""

import os
import sys
from pathlib import Path

ENVIRONMENT = {"PYTHONPATH": str(Path(__file__).parents[1]), "PATH": os.defpath}
"""With where this package is: the process does not have the server's own search path."""
FOLDER = "/"
"""Where it works: a folder that is never removed."""


def command(module: str, *arguments: object) -> list[str]:
    """What starts a module, by its full name."""
    return [sys.executable, "-m", module, *map(str, arguments)]
