"""What every backend promises about copies, tested on each backend."""

from llm_sandbox_mcp.testing.copies import *
