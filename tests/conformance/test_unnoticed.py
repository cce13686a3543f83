"""What no backend lets ordinary code notice, tested on each backend."""

from llm_sandbox_mcp.testing.unnoticed import *
