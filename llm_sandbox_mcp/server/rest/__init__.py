"""HTTP without MCP: `/execute_code/` and what goes with it, for callers that know neither sessions nor tools.

Where `http.execute_code` is on in the profile. Nothing here needs `mcp`.
"""

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ...service import Service
from .answers import refused
from .openapi import describe
from .requests import Refused
from .routes import Operation, Rest

Check = Callable[[Request], Awaitable[Response | None]]
"""Gives the answer to a request that is for another host, or from a page of one."""

_REASONS = {
    403: "the header Origin names a page of another site; call from a program, or from a page of this host",
    404: "nothing is at this path; /openapi.json names all",
    405: "this path does not take this method; /openapi.json says which it takes",
    421: "the header Host names another machine; use localhost, or have the operator name it in http.hosts",
}


def add_paths(application: Starlette, service: Service, check: Check, *, bearer: bool) -> None:
    """Adds the paths to an application; `bearer` says that it takes a token."""
    rest = Rest(service)
    document = describe(rest, service.profile, bearer=bearer)

    async def openapi(_request: Request) -> Response:
        return JSONResponse(document)

    by_path: dict[str, dict[str, Operation]] = {}
    for operation in rest.operations:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    endpoints = {
        path: _endpoint({m: each.handle for m, each in found.items()}, check) for path, found in by_path.items()
    }
    application.router.routes += [Route(path, endpoints[path], methods=[*found]) for path, found in by_path.items()]
    application.router.routes += [
        Route("/execute_code", endpoints["/execute_code/"], methods=["POST"]),
        Route("/openapi.json", _endpoint({"GET": openapi}, check), methods=["GET"]),
    ]


def _endpoint(
    handlers: dict[str, Callable[[Request], Awaitable[Response]]], check: Check
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            if refusal := await check(request):
                raise Refused(refusal.status_code, _REASONS[refusal.status_code])
            return await handlers["GET" if request.method == "HEAD" else request.method](request)
        except ClientDisconnect:
            return Response(status_code=499)  # nobody is there to read it
        except Exception as error:
            return refused(request, error)

    return answer


async def not_there(request: Request, error: Exception) -> Response:
    """What applications with these paths answer for those that they do not have."""
    assert isinstance(error, HTTPException)
    told = refused(request, Refused(error.status_code, _REASONS.get(error.status_code, error.detail)))
    told.headers.update(error.headers or {})
    return told
