"""Arguments that cannot come over every connection, since its parser refuses or replaces them before."""

import math
from typing import Any

import pytest

from llm_sandbox_mcp.base.errors import InvalidArgument
from llm_sandbox_mcp.server.arguments import parse_arguments
from llm_sandbox_mcp.server.schemas import Arguments, ExecuteCode, InstallLibraries, ManageSession


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


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize(
    ("model", "given"),
    [(ExecuteCode, {"code": "1"}), (InstallLibraries, {"libraries": ["six"]}), (ManageSession, {"action": "wait"})],
)
def test_a_time_is_a_finite_number(model: type[Arguments], given: dict[str, Any], value: float) -> None:
    names = [name for name in model.model_fields if name.endswith("_seconds")]
    assert names
    for name in names:
        with pytest.raises(InvalidArgument, match=f"{name} must be a finite number; got"):
            parse_arguments(model, "tool", {**given, name: value})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"timeout_seconds": 0}, "timeout_seconds must be above 0; got 0; leave it out for the default"),
        ({"wait_seconds": -0.5}, "wait_seconds must be at least 0; got -0.5; leave it out for the default"),
        ({"wait_seconds": 10**400}, "wait_seconds is too large; send a smaller number"),
        ({"wait_seconds": True}, "wait_seconds must be a number; got true"),
        ({"wait_seconds": "1"}, "wait_seconds must be a number; got '1'"),
        ({"keep_session": 1}, "keep_session must be true or false; got 1"),
        ({"libraries": "six"}, "libraries must be a list of strings, such as [\"numpy\"]; got 'six'"),
        ({"libraries": ["six", None]}, "libraries[1] must be a string; got null"),
        ({"variables": []}, 'variables must be an object, such as {"x": 1}; got a list'),
        ({"stdin": {}}, "stdin must be a string; got an object"),
        ({"code": ""}, "code must not be empty; give the source to run"),
        ({"sesion_id": "x"}, "execute_code: unknown argument 'sesion_id'; did you mean 'session_id'?"),
        ({"zzz": "x", "stdin": 1}, "execute_code: unknown argument 'zzz'; available: code, language, session_id, "),
    ],
)
def test_a_mistake_is_told_with_what_is_allowed(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_arguments(ExecuteCode, "execute_code", {"code": "1", **given})
    assert str(refused.value).startswith(said)


def test_what_can_be_left_out_can_be_null_and_what_is_at_the_edge_is_allowed() -> None:
    parsed = parse_arguments(ExecuteCode, "execute_code", {"code": "1", "stdin": None, "wait_seconds": 0})
    assert (parsed.stdin, parsed.wait_seconds) == ("", 0)
    with pytest.raises(InvalidArgument, match="code must be a string; got null"):
        parse_arguments(ExecuteCode, "execute_code", {"code": None})
    with pytest.raises(InvalidArgument, match="code: execute_code needs this argument; send it"):
        parse_arguments(ExecuteCode, "execute_code", {})
