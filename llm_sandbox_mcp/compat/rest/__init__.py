"""HTTP without MCP: `/execute_code/` and related paths, for callers that know neither sessions nor tools.

It is served if `http.execute_code` is on in the profile. Nothing here needs `mcp`.
"""

from collections.abc import Awaitable, Callable, Sequence

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ...service import Service
from .answers import refused
from .openapi import describe
from .requests import Refused, until_gone
from .routes import Operation, Rest, health, root

Check = Callable[[Request], Awaitable[Response | None]]
"""Returns the refusal of a request that is for another host, or from a page of another host; None for others."""

_REASONS = {
    403: "the request is from a page of another site, by its header Origin or Sec-Fetch-Site; call from a program, or "
    "from a page of this host",
    404: "unknown path; see /openapi.json for all paths",
    405: "this path does not support this method; see /openapi.json for its methods",
    421: "the header Host names another machine; use localhost, or ask the operator to add it to http.hosts",
}
_READING = frozenset(("GET", "HEAD"))


class RestPaths:
    """The paths, for a server over HTTP."""

    def __init__(self, service: Service) -> None:
        self._rest = Rest(service)
        self._profile = service.profile
        self.largest = service.profile.artifacts.file_size
        self.probes: Sequence[Route] = (Route("/", root), Route("/health", health))

    def routes(self, check: Check, *, bearer: bool) -> Sequence[Route]:
        """All paths; `bearer`: whether callers need a token."""
        document = describe(self._rest, self._profile, bearer=bearer)

        async def openapi(_request: Request) -> Response:
            return JSONResponse(document)

        by_path: dict[str, dict[str, Operation]] = {}
        for operation in self._rest.operations:
            by_path.setdefault(operation.path, {})[operation.method] = operation
        endpoints = {
            path: _endpoint({m: each.handle for m, each in found.items()}, check) for path, found in by_path.items()
        }
        return [
            *(Route(path, endpoints[path], methods=[*found]) for path, found in by_path.items()),
            Route("/execute_code", endpoints["/execute_code/"], methods=["POST"]),
            Route("/openapi.json", _endpoint({"GET": openapi}, check), methods=["GET"]),
        ]

    async def refuse(self, request: Request, error: Exception) -> Response:
        """Answers a request that is refused, or for a path or method that there is not."""
        assert isinstance(error, HTTPException)
        response = refused(request, Refused(error.status_code, _REASONS.get(error.status_code, error.detail)))
        response.headers.update(error.headers or {})
        return response


def _endpoint(
    handlers: dict[str, Callable[[Request], Awaitable[Response]]], check: Check
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            # Some browsers leave Origin out, and a form needs no other permission.
            if request.method not in _READING and request.headers.get("sec-fetch-site") == "cross-site":
                raise Refused(403, _REASONS[403])
            if refusal := await check(request):
                raise Refused(refusal.status_code, _REASONS[refusal.status_code])
            return await until_gone(request, handlers["GET" if request.method == "HEAD" else request.method])
        except ClientDisconnect:
            return Response(status_code=499)  # the caller is gone
        except Exception as error:
            return refused(request, error)

    return answer
