"""The folders in which the engines of the tests keep their files."""

import os
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llm-sandbox-mcp-tests"
"""Images, logs and settings. It outlives a run, so that the next one finds the images."""

RUNTIME = Path("/run/llm-sandbox-mcp-tests")
"""Sockets and the engines' state of running containers. It must be empty after a reboot: engines rely on that."""
