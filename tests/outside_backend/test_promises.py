"""A backend from another package is found by its entry point, and has to pass the same tests as ours."""

from llm_sandbox_mcp.testing.copies import *
from llm_sandbox_mcp.testing.listening import *
from llm_sandbox_mcp.testing.processes import *
from llm_sandbox_mcp.testing.sessions import *
