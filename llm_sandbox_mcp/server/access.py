"""Access over HTTP: the host names that requests may be for, and the token that they must carry."""

import re
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio

from ..base.errors import ProfileError
from ..base.principal import ANONYMOUS, TOKEN, USER, Principal

if TYPE_CHECKING:
    from mcp.server.auth.provider import AccessToken
    from mcp.server.transport_security import TransportSecuritySettings
    from starlette.applications import Starlette
    from starlette.requests import Request

_LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")
_SHORTEST = 16
"""Characters of a token."""
_KEY = "http.token_file"
_MAKE = "create one, for example with `openssl rand -hex 32`"


def names_of(hosts: Sequence[str]) -> "TransportSecuritySettings":
    """Allows requests for this machine or one of the hosts, at any port, and requests from web pages of these."""
    from mcp.server.transport_security import TransportSecuritySettings

    names = [at for name in (*_LOCAL_NAMES, *hosts) for at in (name, f"{name}:*")]
    pages = [f"http://{at}" for at in names] + [f"https://{name}{port}" for name in hosts for port in ("", ":*")]
    return TransportSecuritySettings(allowed_hosts=names, allowed_origins=pages)


async def read_token(file: str) -> str:
    """The token in a file, without the line end. Raises `ProfileError`, whose message never contains the token."""
    try:
        token = (await anyio.Path(file).read_text(encoding="ascii")).strip()
    except OSError as error:
        raise ProfileError(f"{file} cannot be read: {error.strerror}", _MAKE, key=_KEY) from error
    except UnicodeDecodeError:
        token = "\0"
    if not token:
        raise ProfileError(f"{file} is empty", _MAKE, key=_KEY)
    if not re.fullmatch(r"[!-~]+", token):  # what a header can carry
        raise ProfileError(f"{file} must contain one word of ASCII letters, digits and signs", _MAKE, key=_KEY)
    if len(token) < _SHORTEST:
        raise ProfileError(
            f"the token in {file} must have at least {_SHORTEST} characters, not {len(token)}", _MAKE, key=_KEY
        )
    return token


def principal_of(request: "Request | None") -> Principal:
    """Who sent a request; without one, it came over standard input."""
    if request is None:
        return USER
    user = request.scope.get("user")  # as the middleware of `require_token` found it
    return TOKEN if user is not None and user.is_authenticated else ANONYMOUS


def require_token(application: "Starlette", token: str) -> None:
    """Makes the application answer all requests without the token with status 401."""
    from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
    from mcp.server.auth.provider import AccessToken
    from starlette.middleware.authentication import AuthenticationMiddleware

    class OneToken:
        async def verify_token(self, token: str) -> "AccessToken | None":
            # Takes the same time, however much of the token is right.
            right = secrets.compare_digest(token.encode(), expected)
            return AccessToken(token=token, client_id="bearer", scopes=[]) if right else None

    expected = token.encode()
    # The middleware that is added last runs first.
    application.add_middleware(RequireAuthMiddleware, required_scopes=[])
    application.add_middleware(AuthenticationMiddleware, backend=BearerAuthBackend(OneToken()))
