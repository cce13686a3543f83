"""What every backend promises about sessions, tested on each backend."""

from llm_sandbox_mcp.testing.sessions import *
