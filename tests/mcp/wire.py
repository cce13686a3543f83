"""Raw protocol messages, for clients that misbehave."""

import json
from typing import Any

CLIENT = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


def message(method: str, params: dict[str, Any] | None = None, number: int | None = None) -> bytes:
    """One message of the 2025 protocol, as a line; it is a request if it has a number, otherwise a notification."""
    body = {"jsonrpc": "2.0", "method": method, "params": params or {}}
    return json.dumps(body if number is None else body | {"id": number}).encode() + b"\n"
