"""Where the tests' own engines keep things."""

import os
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llm-sandbox-mcp-tests"
"""Images, logs and settings. It outlives a run, so that the next one finds the images."""

RUNTIME = Path("/run/llm-sandbox-mcp-tests")
"""Sockets and what engines know of running containers. It must not outlive the machine's boot: they go by that."""
