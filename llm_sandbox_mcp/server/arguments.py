"""Checks the arguments that a model sent, and says in one line what is wrong and what would be right."""

import difflib
import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ..base.errors import InvalidArgument, quoted
from ..base.messages import Problem
from ..base.text import valid_json
from .schemas import Arguments

_Model = TypeVar("_Model", bound=Arguments)

_EXPECTED = {
    "string_type": "a string",
    "bool_type": "true or false",
    "float_type": "a number",
    "int_type": "a whole number",
    "finite_number": "a finite number",
    "list_type": 'a list of strings, such as ["numpy"]',
    "dict_type": 'an object, such as {"x": 1}',
}

_INSTEAD = {
    "code": "give the source to run",
    "libraries": 'name at least one, such as ["numpy"]',
    "path": "give one such as data/table.csv",
    "session_id": "send one that execute_code returned",
}
"""What to send for each argument that must not be empty."""


def parse_arguments(model: type[_Model], tool: str, raw: Mapping[str, Any]) -> _Model:
    """The arguments as the model's type, with U+FFFD for lone surrogates.

    Raises `InvalidArgument`: one line with the argument, what is allowed, and what to do.
    """
    # Many clients send null for an optional argument that the model left out.
    optional = {name for name, field in model.model_fields.items() if not field.is_required()}
    given = {name: value for name, value in raw.items() if value is not None or name not in optional}
    try:
        return model.model_validate(valid_json(given))
    except RecursionError:
        raise InvalidArgument(f"{tool}: the arguments are nested too deeply", "send flatter values") from None
    except ValidationError as error:
        found = error.errors(include_url=False)
        unknown = [detail for detail in found if detail["type"] == "extra_forbidden"]
        raise InvalidArgument(*_explain(model, tool, (unknown or found)[0])) from None


def _explain(model: type[Arguments], tool: str, detail: ErrorDetails) -> Problem:
    name, *rest = (str(part) for part in detail["loc"])
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(name, model.model_fields, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"available: {', '.join(model.model_fields) or 'none'}"
        return Problem(f"{tool}: unknown argument {quoted(name, 40)}", hint)
    if kind == "missing":
        return Problem(f"{name}: {tool} needs this argument", "send it")
    where = name + "".join(f"[{part}]" for part in rest)
    if kind in ("string_too_short", "too_short"):
        return Problem(f"{where} must not be empty", _INSTEAD[name])
    if kind == "greater_than":
        return Problem(f"{where} must be above {context['gt']:g}; got {value:g}", "leave it out for the default")
    if kind == "greater_than_equal":
        return Problem(f"{where} must be at least {context['ge']:g}; got {value:g}", "leave it out for the default")
    if kind == "literal_error":
        return Problem(f"{where} must be {context['expected']}; got {_shown(value)}")
    if kind == "float_type" and isinstance(value, int) and not isinstance(value, bool):
        return Problem(f"{where} is too large", "send a smaller number")
    if kind in _EXPECTED:
        return Problem(f"{where} must be {_EXPECTED[kind]}; got {_shown(value)}")
    return Problem(f"{where}: {detail['msg']}")


def _shown(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool() | int() | float():
            return json.dumps(value)[:40]
        case str():
            return quoted(value, 40)
        case list():
            return "a list"
        case _:
            return "an object"
