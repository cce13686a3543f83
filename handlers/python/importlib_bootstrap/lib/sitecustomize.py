"""Puts the session's libraries on the import path of every Python process of the sandbox, and what stands for pip.

PYTHONPATH would put them before the standard library: there, one old backport (`enum34`, `typing`) breaks everything.
"""

import os
import sys

_handler = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_libraries = os.environ.get("SANDBOX_PYTHON_LIBRARIES")
if _libraries and _libraries not in sys.path:
    _packages = (at for at, entry in enumerate(sys.path) if entry.endswith(("site-packages", "dist-packages")))
    _at = next(_packages, len(sys.path))
    sys.path[_at:_at] = [_libraries, os.path.join(_handler, "pip")]
