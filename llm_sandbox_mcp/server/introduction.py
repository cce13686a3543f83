"""What a host can show of the server beside its name: an icon and a website, told once at the handshake."""

from base64 import b64encode

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.types import SERVER_INFO_META_KEY

from .audience import Audience

_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"><rect width="24" height="24" rx="5" fill="#2458a8"/>'
    '<path d="m6 8 4 4-4 4m7 0h5" fill="none" stroke="#fff" stroke-width="2" stroke-linecap="round"/></svg>'
)
_SHOWN = {
    "websiteUrl": "https://github.com/llm-sandbox-mcp/llm-sandbox-mcp",
    "icons": [
        {
            "src": f"data:image/svg+xml;base64,{b64encode(_ICON.encode()).decode()}",
            "mimeType": "image/svg+xml",
            "sizes": ["any"],
        }
    ],
}
_SINCE = "2025-11-25"
"""The version of the protocol in which servers have icons and websites."""


async def introduce(ctx: ServerRequestContext[Audience], call_next: CallNext) -> HandlerResult:
    """Adds them to the answer to a handshake: the package itself would send them with each answer of 2026."""
    result = await call_next(ctx)
    if isinstance(result, dict):
        if ctx.method == "initialize" and result["protocolVersion"] >= _SINCE:
            result["serverInfo"] |= _SHOWN
        elif ctx.method == "server/discover":
            result["_meta"][SERVER_INFO_META_KEY] |= _SHOWN
    return result
