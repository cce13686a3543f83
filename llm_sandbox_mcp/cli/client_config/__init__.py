"""The configuration of MCP clients: what to write into which file."""
