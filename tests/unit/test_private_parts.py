"""Parts of other packages that they do not promise to keep, and that this package relies on all the same."""

import ast
import inspect
from collections.abc import Iterable
from importlib.metadata import version

import pytest
from aiohttp import TCPConnector
from aiohttp.client_proto import ResponseHandler
from mcp.server.session import ServerSession
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from llm_sandbox_mcp.server import connections

PROTOCOL = {
    "app",
    "client",
    "conn",
    "connection_lost",
    "connection_made",
    "connections",
    "cycle",
    "data_received",
    "flow",
    "headers",
    "limit_concurrency",
    "loop",
    "on_response_complete",
    "scope",
    "transport",
}


def named_by(kind: type) -> set[str]:
    """All attributes that the methods of a class name, its own or inherited ones."""
    tree = ast.parse(inspect.getsource(kind))
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} | {*vars(kind)}


@pytest.mark.parametrize(
    ("package", "kind", "parts", "user"),
    [
        ("uvicorn", H11Protocol, PROTOCOL, "server/connections.py"),
        ("uvicorn", RequestResponseCycle, {"response_complete"}, "server/connections.py"),
        ("uvicorn", FlowControl, {"read_paused"}, "server/connections.py"),
        ("mcp", ServerSession, {"_connection"}, "server/audience.py"),
        ("aiohttp", TCPConnector, {"_create_connection"}, "backends/kubernetes/api.py"),
        ("aiohttp", ResponseHandler, {"transport"}, "backends/kubernetes/api.py"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_the_installed_version_has_the_part(package: str, kind: type, parts: Iterable[str], user: str) -> None:
    has = set().union(*(named_by(one) for one in kind.__mro__ if one.__module__.startswith(package)))
    missing = sorted({*parts} - has)
    assert not missing, (
        f"{package} {version(package)} has no {', '.join(missing)} in {kind.__name__} any more; "
        f"change {user}, or exclude this version in pyproject.toml"
    )


def test_the_list_for_uvicorn_is_complete() -> None:
    ours = ast.parse(inspect.getsource(connections._Connection))
    names = [node for node in ast.walk(ours) if isinstance(node, ast.Attribute)]
    used = {name.attr for name in names if ast.unparse(name.value) in ("self", "super()")}
    assert {name for name in used if not name.startswith("_")} == PROTOCOL
