"""Run code written by language models in isolated sandboxes: an async MCP server and a Python library."""

__version__ = "0.1.0"
