"""Each HTTP request gets one answer: what fails afterwards does not close its connection, which others may use."""

from anyio import BrokenResourceError, ClosedResourceError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOO_LATE = (BrokenResourceError, ClosedResourceError)
"""What the `mcp` package raises if it passes a message on to a session that has ended in the meantime.

It answers notifications first; then it would answer again, with this error.
"""


class Once:
    """An application whose errors of this kind are dropped if the request has its answer already."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answered = False

        async def send_once(message: Message) -> None:
            nonlocal answered
            if not answered:
                await send(message)
                answered = message["type"] == "http.response.body" and not message.get("more_body", False)

        try:
            await self._application(scope, receive, send_once)
        except TOO_LATE:
            if not answered:
                raise
