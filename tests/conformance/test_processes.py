"""What every backend promises of processes, on each."""

from llm_sandbox_mcp.testing.processes import *
