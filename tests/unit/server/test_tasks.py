"""Which clients have tasks: those that declare them, in a version of the protocol that has them."""

from types import SimpleNamespace
from typing import cast

import pytest
from mcp.types import ClientCapabilities

from llm_sandbox_mcp.server.audience import Context
from llm_sandbox_mcp.server.task_extension import EXTENSION, declared

MODERN, OLD = "2026-07-28", "2025-11-25"


def context(version: str, capabilities: ClientCapabilities | None) -> Context:
    session = SimpleNamespace(client_capabilities=capabilities)
    return cast(Context, SimpleNamespace(session=session, protocol_version=version))


@pytest.mark.parametrize(
    ("version", "extensions", "known"),
    [
        (MODERN, {EXTENSION: {}}, True),
        (OLD, {EXTENSION: {}}, False),
        (MODERN, {"other": {}}, False),
        (MODERN, {}, False),
        (MODERN, None, False),
    ],
)
def test_tasks_are_for_clients_that_declare_them_in_a_version_that_has_them(
    version: str, extensions: dict[str, dict[str, object]] | None, known: bool
) -> None:
    assert declared(context(version, ClientCapabilities(extensions=extensions))) is known


def test_a_client_that_says_nothing_about_itself_knows_no_tasks() -> None:
    assert not declared(context(MODERN, None))
