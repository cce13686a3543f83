"""Reports the values of the names that a cell bound, as JSON, or its error, for requests with `inspect`."""

from __future__ import annotations

import json
import symtable
import traceback
import types

from sandbox_channel import quote
from sandbox_errors import clean

_VALUES_LIMIT = 512 * 1024
"""The most bytes of all values of one report, as JSON."""
_VALUES_COUNT = 4_000
"""The most values of one report: the server does not read reports with much outside their strings."""
_TEXT_LIMIT = 20_000
"""The most characters of an error's message, and of its traceback."""
_NAMES_LIMIT = 50
"""The most names that are reported as left out."""
_NOT_VALUES = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)
"""Types whose objects nobody expects among the values: they are not even reported as left out."""


class Inspection:
    """The `inspection` of one run. Created before the run, so that it can distinguish new names from old names."""

    def __init__(self, names: dict, code: str, variables: dict) -> None:
        self._names = names
        self._before = set(names)
        self._code = code
        self._variables = variables
        self.report = ""
        """The `inspection` part of the report, with the comma before it; empty if it could not be made."""

    def record(self, error: BaseException | None) -> None:
        """Makes the report from the error, or without an error from the names; may run user code."""
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
            values, left_out = self._values()
            self.report = (
                f',"inspection":{{"values":{{{",".join(values)}}},"left_out":[{",".join(left_out[:_NAMES_LIMIT])}]}}'
            )
            return
        clean(error)
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        facts = {"type": type(error).__name__, "message": _message(error), "traceback": text[-_TEXT_LIMIT:]}
        parts = ",".join(f"{quote(key)}:{quote(fact)}" for key, fact in facts.items())
        self.report = f',"inspection":{{"error":{{{parts}}}}}'

    def _values(self) -> tuple[list[str], list[str]]:
        """Returns the members of the JSON object, and the quoted names that have none."""
        values, left_out = [], []
        room = _VALUES_LIMIT
        for name, imported in self._bound():
            value = self._names[name]
            part = _encoded(value, room) if len(values) < _VALUES_COUNT else ""
            if part:
                values.append(f"{quote(name)}:{part}")
                room -= len(part.encode())
            elif not imported and not isinstance(value, _NOT_VALUES):
                left_out.append(quote(name))
        return values, left_out

    def _bound(self) -> list[tuple[str, bool]]:
        """Returns the variables of the run and the names that its code bound, each with whether it was imported.

        Names that the code declared global are not included.
        """
        symbols = symtable.symtable(self._code, "<cell>", "exec").get_symbols()
        public = {symbol.get_name() for symbol in symbols if symbol.is_declared_global()}
        imported = {symbol.get_name() for symbol in symbols if symbol.is_imported()}
        assigned = {symbol.get_name() for symbol in symbols if symbol.is_assigned()}
        # For example names that `exec` or `from module import *` bound.
        new = {name for name in self._names.keys() - self._before if not name.startswith("__")}
        bound = ((imported | assigned | new) - public).union(self._variables)
        return [(name, name in imported) for name in self._names if name in bound]


def _message(error: BaseException) -> str:
    try:
        return str(error)[:_TEXT_LIMIT]
    except Exception:
        return "<exception str() failed>"


def _encoded(value: object, room: int) -> str:
    """Returns the value as JSON in a JSON string; empty if JSON cannot express it, or if there is no room for it."""
    if not _fits(value, room):
        return ""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()  # fails for lone surrogates, which quoting would change
        part = quote(text)
        return part if len(part.encode()) <= room else ""
    except Exception:  # also errors of the user's own classes
        return ""


def _fits(value: object, room: int) -> bool:
    """Whether a value can fit. Checked before it is encoded: the text of a large value could use up the memory."""
    pending = [value]
    while pending and room >= 0:
        item = pending.pop()
        room -= 1
        if isinstance(item, str):
            room -= str.__len__(item)
        elif isinstance(item, int):
            room -= int.bit_length(item) // 4
        elif isinstance(item, (list, tuple, dict)):
            room -= len(item)
            if room >= 0:
                pending.extend(item)
                if isinstance(item, dict):
                    pending.extend(dict.values(item))
    return room >= 0
