"""What every backend promises of copies, on each."""

from llm_sandbox_mcp.testing.copies import *
