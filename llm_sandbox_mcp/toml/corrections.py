"""What to write instead of a wrong key in a TOML file, and what a wrong value must be."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from ..base.similar import did_you_mean, similar

_SUBJECT = re.compile(r"^\w+ should\b")


@dataclass(frozen=True, slots=True)
class Mistake:
    """One value that does not fit."""

    kind: str
    """Pydantic's name for it, such as missing or extra_forbidden."""
    location: tuple[int | str, ...]
    """The names and positions that lead to the value; empty for the whole file or request."""
    reason: str
    """What the value must be, without the key."""
    value: object
    """The value itself; the table around it if it is missing."""

    @property
    def key(self) -> str:
        """Where the value is, such as limits.memory; empty for the whole file or request."""
        return ".".join(map(str, self.location))


def first_mistake(error: ValidationError) -> Mistake:
    """The first mistake that was found: people fix them one by one."""
    detail = error.errors(include_url=False)[0]
    reason = _SUBJECT.sub("must", detail["msg"].removeprefix("Value error, "))
    return Mistake(detail["type"], detail["loc"], reason, detail["input"])


_WANTED = {
    "tuple_type": "a list",
    "string_type": "text in quotes",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "a table, such as { NAME = value }",
    "mapping_type": "a table, such as { NAME = value }",
}
"""What belongs where a value of another type is, by pydantic's name for the mistake."""
_UNQUOTED = ("int_type", "float_type", "bool_type")
_PLACES = 2
"""How many other places of a key are named."""


@dataclass(frozen=True, slots=True)
class TomlFile:
    """The model of a file and, for its errors, where its keys are described."""

    model: type[BaseModel]
    reference: str
    """The place that lists all keys."""
    example: Mapping[str, Any]
    """The settings of a file with every key; empty if there is no such file."""

    def correction(self, mistake: Mistake) -> str:
        """Why a value or key is wrong, and what to write instead."""
        match mistake.kind:
            case "missing":
                return "missing; add it"
            case "extra_forbidden":
                return f"unknown key; {did_you_mean(self._meant(mistake)) or f'see {self.reference} for all keys'}"
            case "literal_error":
                written = mistake.value if isinstance(mistake.value, str) else ""
                choices = re.findall("'([^']+)'", mistake.reason)
                question = did_you_mean([repr(one) for one in similar(written, choices)])
                return "; ".join(filter(None, (mistake.reason, question)))
            case "model_type":
                return _table(mistake)
            case kind if kind in _WANTED:
                return _value(mistake)
        return mistake.reason

    def _meant(self, mistake: Mistake) -> list[str]:
        """Keys that were probably meant: of the same table without its name, of other tables with theirs."""
        name = str(mistake.location[-1])
        near = similar(name, self._siblings(mistake.location))
        table = mistake.key.rpartition(".")[0]
        keys = [key for key in _keys(self.example) if key.rpartition(".")[0] != table]
        inner = mistake.value if isinstance(mistake.value, dict) else {}
        for one in (name, *inner):
            if same := [key for key in keys if _plain(one) in (_plain(key), _plain(key.rpartition(".")[2]))]:
                return near + same[:_PLACES]
            if near:
                return near
        last = {key.rpartition(".")[2]: key for key in reversed(keys)}
        return [last[one] for one in similar(name, last)][:_PLACES]

    def _siblings(self, location: Sequence[int | str]) -> list[str]:
        """The keys of the table that a location is in."""
        section: type[BaseModel] | None = self.model
        table: Any = self.example
        for step in location[:-1]:
            table = table.get(step) if isinstance(table, Mapping) else None
            # Positions in lists, and names that the operator chose, do not lead to another section.
            if section is not None and step in section.model_fields:
                section = _section(section.model_fields[str(step)].annotation)
        return [*dict.fromkeys((*(section.model_fields if section else ()), *(table or ())))]


def _section(kind: Any) -> type[BaseModel] | None:
    """The model of a table, or of the tables in a collection."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    return next(filter(None, map(_section, get_args(kind))), None)


def _table(mistake: Mistake) -> str:
    key, value = mistake.key, mistake.value
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return f"must be one table: write [{key}] instead of [[{key}]]"
    if any(isinstance(step, int) for step in mistake.location):
        return "must be a table"
    return f"must be a table: write [{key}], and below it its keys"


def _value(mistake: Mistake) -> str:
    if mistake.kind == "tuple_type" and isinstance(mistake.value, dict):
        return f"must be a list; a list of tables is written [[{mistake.key}]]"
    without = " without quotes" if isinstance(mistake.value, str) and mistake.kind in _UNQUOTED else ""
    return f"must be {_WANTED[mistake.kind]}{without}"


def _keys(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The whole names of all keys, such as limits.memory."""
    for name, value in table.items():
        if isinstance(value, dict) and value:
            yield from _keys(value, f"{prefix}{name}.")
        else:
            yield prefix + name


def _plain(name: str) -> str:
    return re.sub("[-_.]", "", name).lower()
