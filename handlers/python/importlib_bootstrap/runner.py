"""Starts the Python runner: prepares this interpreter, then answers requests until the input ends.

Python's warnings skip frames of files whose path contains `importlib` and `_bootstrap`, as those of its own imports do.
This folder has its name for that reason: a warning names a line of the code, never one of the runner.
"""

import os
import sys

# The code must not import from this script's folder; the runner's own modules are in lib/, which is in PYTHONPATH.
if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
    del sys.path[0]

if sys.version_info < (3, 8):  # noqa: UP036 - an image can have any version
    found = sys.version.split()[0]
    sys.exit("Python 3.8 or newer is required, but this is " + found + "; use an image with a newer Python")

from sandbox_serve import serve, set_up
from sandbox_zygote import wait

if __name__ == "__main__":
    wait()
    serve(*set_up())
