"""Roots: folders that the client offers to servers. They are read only if the operator allows it, and never written."""

import os
from collections.abc import Iterator, Sequence
from urllib.parse import unquote, urlsplit

import anyio
from mcp.shared.exceptions import MCPError
from mcp.types import InputRequiredResult, ListRootsRequest, ListRootsResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from ..base.errors import Unavailable
from ..base.open_folders import OpenFolder
from ..profile.profile import Profile
from .audience import Context

_KEY = "roots"
_PATIENCE = 10.0
"""Seconds that a client has to list its roots."""
_SILENT = "the client did not list its roots", "send the file's content instead"


class Roots:
    """The folders whose files the client can name."""

    def __init__(self, profile: Profile, *, host_files: bool) -> None:
        self.host_files = host_files
        """Whether the only client is the user of this machine, on stdio."""
        self._opened = profile.files.opened if host_files else ()
        self._allowed = host_files and profile.files.client_roots

    async def folders(self, ctx: Context) -> Sequence[OpenFolder] | InputRequiredResult:
        """The folders that a call can copy from; or the question that the client has to answer first.

        Raises `Unavailable` if the client does not answer it.
        """
        capabilities = ctx.session.client_capabilities
        if not self._allowed or capabilities is None or capabilities.roots is None:
            return self._opened
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return (*self._opened, *_folders(await _ask(ctx)))
        given = ((ctx.params or {}).get("inputResponses") or {}).get(_KEY)
        if given is None:
            return InputRequiredResult(input_requests={_KEY: ListRootsRequest()})
        try:
            return (*self._opened, *_folders(ListRootsResult.model_validate(given)))
        except ValidationError as error:
            raise Unavailable(*_SILENT) from error


async def _ask(ctx: Context) -> ListRootsResult:
    try:
        with anyio.fail_after(_PATIENCE):
            return await ctx.session.send_request(ListRootsRequest(), ListRootsResult)
    except (TimeoutError, MCPError) as error:
        raise Unavailable(*_SILENT) from error


def _folders(answer: ListRootsResult) -> Iterator[OpenFolder]:
    """The roots that are absolute paths on this machine."""
    for root in answer.roots:
        parts = urlsplit(str(root.uri))
        path = unquote(parts.path)
        if parts.netloc in ("", "localhost") and os.path.isabs(path) and "\0" not in path:
            yield OpenFolder(os.path.normpath(path))
