"""What every backend promises about listening, tested on each backend."""

from llm_sandbox_mcp.testing.listening import *
