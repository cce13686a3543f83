"""A backend that another package brings is found by its entry point, and held to what ours are."""

from llm_sandbox_mcp.testing.copies import *
from llm_sandbox_mcp.testing.listening import *
from llm_sandbox_mcp.testing.processes import *
from llm_sandbox_mcp.testing.sessions import *
