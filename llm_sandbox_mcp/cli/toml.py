"""A profile as TOML that can be loaded again."""

from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any

import tomli_w
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ..base.text import without_credentials
from ..base.units import SIZES, TIMES, parse_duration, parse_size
from ..profile.profile import Profile


def as_toml(profile: Profile) -> str:
    """Every key of the profile as TOML, sizes and times with units; credentials in addresses are masked."""
    tables = _table(profile, leave_out={"engines"})
    for engine in profile.engines.values():
        tables |= _table(engine)
    return tomli_w.dumps(tables, indent=2)


def _table(model: BaseModel, leave_out: Collection[str] = ()) -> dict[str, Any]:
    fields = {name: field for name, field in type(model).model_fields.items() if name not in leave_out}
    return {name: _value(getattr(model, name), field) for name, field in fields.items()}


def _value(value: Any, field: FieldInfo) -> Any:
    validators = [getattr(item, "func", None) for item in field.metadata]
    if parse_size in validators:
        return _exact(value, SIZES)
    if parse_duration in validators:
        return _exact(value, TIMES)
    if isinstance(value, BaseModel):
        return _table(value)
    if isinstance(value, Mapping):
        return {key: _table(one) if isinstance(one, BaseModel) else _plain(one) for key, one in value.items()}
    return _plain(value)


def _plain(value: Any) -> Any:
    """A value, or a collection of values, without units; for tables in a list only the keys that were set."""
    match value:
        case str():
            return without_credentials(value)
        case BaseModel():
            return _plain(value.model_dump(exclude_defaults=True))
        case Mapping():
            return {str(key): _plain(one) for key, one in value.items()}
        case tuple() | list():
            return [_plain(one) for one in value]
    return value


def _exact(value: float, units: Mapping[str, float]) -> str:
    """The amount in the largest unit that divides it, so that nothing is lost by rounding."""
    amount = Decimal(repr(value))
    for unit, factor in reversed(list(units.items())):
        if factor >= 1 and amount % Decimal(factor) == 0 and amount:
            return f"{int(amount / Decimal(factor))}{unit}"
    return f"{amount:f}{next(unit for unit, factor in units.items() if factor == 1)}"
