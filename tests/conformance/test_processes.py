"""What every backend promises about processes, tested on each backend."""

from llm_sandbox_mcp.testing.processes import *
