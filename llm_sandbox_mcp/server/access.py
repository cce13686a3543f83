"""Who may call over HTTP: the names that requests may be for, and the token that they have to bear."""

import re
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio

from ..errors import ProfileError

if TYPE_CHECKING:
    from mcp.server.auth.provider import AccessToken
    from mcp.server.transport_security import TransportSecuritySettings
    from starlette.applications import Starlette

_LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")
_SHORTEST = 16
"""Characters of a token."""
_MAKE = "make one, as with `openssl rand -hex 32`"


def names_of(hosts: Sequence[str]) -> "TransportSecuritySettings":
    """Lets in requests for this machine or one of the hosts, at any port, and from their own pages."""
    from mcp.server.transport_security import TransportSecuritySettings

    names = [at for name in (*_LOCAL_NAMES, *hosts) for at in (name, f"{name}:*")]
    pages = [f"http://{at}" for at in names] + [f"https://{name}{port}" for name in hosts for port in ("", ":*")]
    return TransportSecuritySettings(allowed_hosts=names, allowed_origins=pages)


async def read_token(file: str) -> str:
    """The token that a file holds, without the line's end; raises `ProfileError`, in which no token is."""
    try:
        token = (await anyio.Path(file).read_text(encoding="ascii")).strip()
    except OSError as error:
        raise ProfileError(f"http.token_file: {file} cannot be read: {error.strerror}; {_MAKE}") from error
    except UnicodeDecodeError:
        token = "\0"
    if not token:
        raise ProfileError(f"http.token_file: {file} is empty; {_MAKE}")
    if not re.fullmatch(r"[!-~]+", token):  # what a header can carry
        raise ProfileError(f"http.token_file: {file} must hold one word of ASCII letters, digits and signs; {_MAKE}")
    if len(token) < _SHORTEST:
        raise ProfileError(
            f"http.token_file: the token in {file} must have at least {_SHORTEST} characters, not {len(token)}; {_MAKE}"
        )
    return token


def require_token(application: "Starlette", token: str) -> None:
    """Has the application answer requests that do not bear the token with 401, whatever they are for."""
    from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
    from mcp.server.auth.provider import AccessToken
    from starlette.middleware.authentication import AuthenticationMiddleware

    class OneToken:
        async def verify_token(self, token: str) -> "AccessToken | None":
            # In a time that tells nothing of how much of it is right.
            right = secrets.compare_digest(token.encode(), expected)
            return AccessToken(token=token, client_id="bearer", scopes=[]) if right else None

    expected = token.encode()
    # The last one added comes first.
    application.add_middleware(RequireAuthMiddleware, required_scopes=[])
    application.add_middleware(AuthenticationMiddleware, backend=BearerAuthBackend(OneToken()))
