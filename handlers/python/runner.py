"""Starts the Python runner: prepares this interpreter, then answers requests until the input ends."""

import os
import sys

# The script's own folder must not answer the code's imports; everything of ours is in lib/, which PYTHONPATH names.
if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
    del sys.path[0]

if sys.version_info < (3, 8):  # noqa: UP036 - it is that of an image, whichever that is
    sys.exit("Python 3.8 or newer is needed, and here is " + sys.version.split()[0] + "; name an image that has it")

from sandbox_serve import serve, set_up

if __name__ == "__main__":
    serve(*set_up())
