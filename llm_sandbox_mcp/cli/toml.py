"""A profile as TOML that can be loaded again."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ..profile import Profile
from ..units import SIZES, TIMES, parse_duration, parse_size

_CREDENTIALS = re.compile(r"(?<=//)[^/@\s]+@")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def as_toml(profile: Profile) -> str:
    """Every key of the profile; sizes and times with their units, credentials in addresses masked."""
    lines = list(_tables(profile, (), leave_out={"engines"}))
    of_engines = {
        name: getattr(engine, name) for engine in profile.engines.values() for name in type(engine).model_fields
    }
    for name, table in of_engines.items():
        lines += _tables(table, (name,))
    return "\n".join(lines).lstrip("\n") + "\n"


def _tables(model: BaseModel, path: tuple[str, ...], leave_out: Collection[str] = ()) -> Iterator[str]:
    below: list[tuple[str, BaseModel]] = []
    fields = {name: field for name, field in type(model).model_fields.items() if name not in leave_out}
    if path and any(not _is_tables(getattr(model, name)) for name in fields):
        yield f"\n[{'.'.join(map(_key, path))}]"
    for name, field in fields.items():
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            below.append((name, value))
        elif _is_tables(value):
            below += [(f"{name}\0{key}", section) for key, section in value.items()]
        else:
            yield f"{name} = {_value(value, field)}"
    for name, section in below:
        yield from _tables(section, (*path, *name.split("\0")))


def _is_tables(value: object) -> bool:
    """Whether the value has tables of its own: sections do, what is written in one line does not."""
    if isinstance(value, Mapping):
        return bool(value) and all(isinstance(section, BaseModel) for section in value.values())
    return isinstance(value, BaseModel)


def _value(value: Any, field: FieldInfo) -> str:
    validators = [getattr(item, "func", None) for item in field.metadata]
    if parse_size in validators:
        return f'"{_exact(Decimal(value), SIZES)}"'
    if parse_duration in validators:
        return f'"{_exact(Decimal(repr(value)), TIMES)}"'
    return _inline(value)


def _inline(value: Any) -> str:
    """A value in one line, whatever it holds."""
    match value:
        case str():
            return _text(value)
        case bool():
            return str(value).lower()
        case BaseModel():
            return _inline(value.model_dump(exclude_defaults=True))
        case Mapping():
            pairs = ", ".join(f"{_key(str(key))} = {_inline(inner)}" for key, inner in value.items())
            return f"{{ {pairs} }}" if pairs else "{}"
        case tuple() | list():
            return f"[{', '.join(map(_inline, value))}]"
    return repr(value)


def _exact(amount: Decimal, units: Mapping[str, float]) -> str:
    """The amount in the largest unit that divides it, so that nothing is lost by rounding."""
    for unit, factor in reversed(list(units.items())):
        if factor >= 1 and amount % Decimal(factor) == 0 and amount:
            return f"{int(amount / Decimal(factor))}{unit}"
    return f"{amount:f}{next(unit for unit, factor in units.items() if factor == 1)}"


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _text(name)


def _text(text: str) -> str:
    # TOML's basic strings have JSON's escapes; only DEL is allowed there and not here.
    return json.dumps(_CREDENTIALS.sub("***@", text), ensure_ascii=False).replace("\x7f", "\\u007f")
