"""Finds the versions of the libraries that are loaded."""

from __future__ import annotations

import os
import sys


def libraries() -> dict:
    """The versions of the libraries that are loaded."""
    standard = os.path.join(os.path.dirname(os.__file__), "")
    found = {}
    for name, module in [*sys.modules.items()]:
        if "." in name or type(module) is not type(sys) or name.startswith("sandbox_"):
            continue
        version, file = (vars(module).get(each) for each in ("__version__", "__file__"))
        if type(version) is str and type(file) is str and (not file.startswith(standard) or "-packages/" in file):
            found[name] = version
    return found
