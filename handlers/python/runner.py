"""Starts the Python runner: prepares this interpreter, then answers requests until the input ends."""

import os
import sys

# The script's own folder must not answer the code's imports; everything of ours is in lib/, which PYTHONPATH names.
if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
    del sys.path[0]

from sandbox_serve import serve, set_up

if __name__ == "__main__":
    serve(*set_up())
