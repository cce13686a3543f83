"""What every backend promises of listening, on each."""

from llm_sandbox_mcp.testing.listening import *
