"""What every backend promises of sessions, on each."""

from llm_sandbox_mcp.testing.sessions import *
