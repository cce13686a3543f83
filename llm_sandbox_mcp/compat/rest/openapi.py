"""The description of the paths, in OpenAPI 3.1, generated from their models."""

from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from ... import __version__
from ...base.results import DEFAULT_TIMEOUT
from ...profile.profile import Profile
from .models import NAME, SHARED, ExecuteCode, ExecutionFailed, Failure
from .requests import SESSION_HEADER
from .routes import Operation, Rest

_FILE: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_SESSION: dict[str, Any] = {
    "name": SESSION_HEADER,
    "in": "header",
    "description": "Which session: any name, opened on its first use; without a name, one that all callers share",
    "schema": {"type": "string", "pattern": NAME, "default": SHARED},
}
_PATH: dict[str, Any] = {
    "name": "path",
    "in": "path",
    "required": True,
    "description": "Below the working directory, such as data/table.csv",
    "schema": {"type": "string", "minLength": 1},
}


def describe(rest: Rest, profile: Profile, *, bearer: bool) -> dict[str, Any]:
    """The document; `bearer`: whether callers need the token of `http.token_file`."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in rest.operations:
        path = operation.path.replace(":path}", "}")
        paths.setdefault(path, {})[operation.method.lower()] = _operation(operation, bearer=bearer)
    components: dict[str, Any] = {"schemas": _schemas(rest, profile)}
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "llm-sandbox-mcp",
            "version": __version__,
            "description": "Runs Python code in isolated sandboxes. The same server speaks MCP at /mcp.",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": components,
    }
    if bearer:
        components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    return document


def _operation(operation: Operation, *, bearer: bool) -> dict[str, Any]:
    parameters = [_PATH] if "{path" in operation.path else []
    parameters += [_SESSION] if operation.in_session else []
    responses = {
        str(operation.status): {"description": "Done", "content": _content(operation.answer)},
        "default": {"description": "Refused or failed: cause; next step", "content": _content(Failure)},
    }
    if operation.body is ExecuteCode:
        failed = {"anyOf": [_ref(ExecutionFailed), _ref(Failure)]}
        responses["400"] = {
            "description": "The code failed, or cannot be run",
            "content": {"application/json": {"schema": failed}},
        }
    described: dict[str, Any] = {
        "operationId": operation.handle.__name__,
        "summary": (operation.handle.__doc__ or "").partition("\n")[0],
        "parameters": parameters,
        "responses": responses,
    }
    if operation.upload:
        # Not required: a file can be empty.
        described["requestBody"] = {"content": {"application/octet-stream": _FILE}}
    elif operation.body is not None:
        described["requestBody"] = {"required": True, "content": _content(operation.body)}
    if bearer and operation.path not in ("/", "/health"):
        described["security"] = [{"bearer": []}]
        responses["401"] = {"description": "The token is missing or wrong"}
    return described


def _content(model: type[BaseModel] | None) -> dict[str, Any]:
    if model is None:
        return {"*/*": _FILE}
    return {"application/json": {"schema": _ref(model)}}


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _schemas(rest: Rest, profile: Profile) -> dict[str, Any]:
    wanted: dict[type[BaseModel], Literal["validation", "serialization"]] = {
        Failure: "serialization",
        ExecutionFailed: "serialization",
    }
    for operation in rest.operations:
        if operation.body is not None:
            wanted[operation.body] = "validation"
        if operation.answer is not None:
            wanted[operation.answer] = "serialization"
    _, found = models_json_schema([*wanted.items()], ref_template="#/components/schemas/{model}")
    schemas: dict[str, Any] = found["$defs"]
    longest = profile.limits.timeout
    schemas["ExecuteCode"]["properties"]["timeout_seconds"] |= {
        "default": min(DEFAULT_TIMEOUT, longest),
        "maximum": longest,
    }
    return schemas
