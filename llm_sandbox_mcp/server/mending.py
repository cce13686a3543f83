"""Messages over HTTP get valid Unicode before the package parses them, which refuses most others."""

from collections import deque

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..base.text import mended_json


class Mending:
    """An application that gets the bodies of MCP's messages as `mended_json`."""

    def __init__(self, app: ASGIApp, largest: int) -> None:
        """`largest` is the size of the largest body that the application accepts; larger ones stay as they are.

        Bytes that are not UTF-8 become three each: a body of them can grow until the application refuses it.
        """
        self._app = app
        self._largest = largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST" and _is_for_messages(scope["path"]):
            receive = self._mended(receive)
        await self._app(scope, receive, send)

    def _mended(self, receive: Receive) -> Receive:
        ready: deque[Message] = deque()
        read = False

        async def receive_mended() -> Message:
            nonlocal read
            if not read:
                ready.extend(await self._read(receive))
                read = True
            return ready.popleft() if ready else await receive()

        return receive_mended

    async def _read(self, receive: Receive) -> list[Message]:
        """The mended body; or the start of one that is too large; or that the client is gone."""
        body = bytearray()
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if len(body) > self._largest:
                return [{**message, "body": bytes(body)}]
            if not message.get("more_body", False):
                # The package keeps the last part for as long as it handles the request.
                return [{**message, "body": mended_json(bytes(body)), "more_body": True}, {**message, "body": b""}]
        return [message]


def _is_for_messages(path: str) -> bool:
    return path == "/mcp" or path.startswith("/messages/")
