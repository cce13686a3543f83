"""Puts the session's libraries on the import path of every Python process of the sandbox.

PYTHONPATH would put them before the standard library: there, one old backport (`enum34`, `typing`) breaks everything.
"""

import os
import sys

_libraries = os.environ.get("SANDBOX_PYTHON_LIBRARIES")
if _libraries and _libraries not in sys.path:
    _packages = (at for at, entry in enumerate(sys.path) if entry.endswith(("site-packages", "dist-packages")))
    sys.path.insert(next(_packages, len(sys.path)), _libraries)
