"""Modules of this package that run in a separate process, without the server's environment and working directory."""

import os
import sys
from pathlib import Path

ENVIRONMENT = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": os.defpath}
"""Includes the folder of this package: the process does not inherit the server's search path for modules."""
FOLDER = "/"
"""The working directory of the process: a folder that is never removed."""


def command(module: str, *arguments: object) -> list[str]:
    """The command that starts a module, given by its full name."""
    return [sys.executable, "-m", module, *map(str, arguments)]
