"""Arguments that cannot come over every connection, since its parser refuses or replaces them before."""

from typing import Any

import pytest

from llm_sandbox_mcp.base.errors import InvalidArgument
from llm_sandbox_mcp.server.arguments import parse_arguments
from llm_sandbox_mcp.server.schemas import ExecuteCode


def test_arguments_that_are_nested_too_deeply_are_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidArgument, match="execute_code: the arguments are nested too deeply; send flatter values"):
        parse_arguments(ExecuteCode, "execute_code", {"code": "1", "variables": {"x": deep}})


def test_lone_surrogates_are_replaced_in_names_too() -> None:
    parsed = parse_arguments(ExecuteCode, "execute_code", {"code": "1", "variables": {"x": {"\udfff": ["\ud800"]}}})
    assert parsed.variables == {"x": {"\ufffd": ["\ufffd"]}}
    with pytest.raises(InvalidArgument, match="unknown argument '\ufffd'"):
        parse_arguments(ExecuteCode, "execute_code", {"code": "1", "\ud800": 1})
