"""What the names that a cell bound stand for, as JSON, and its error as data: for requests that ask to be told."""

from __future__ import annotations

import json
import symtable
import traceback
import types

from sandbox_channel import quote
from sandbox_errors import clean

_ROOM = 512 * 1024
"""Bytes of all values of one report, as JSON."""
_TEXT = 20_000
"""Characters of an error's message, and of its traceback."""
_NAMES = 50
"""Names that are told as left out."""
_SILENT = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)
"""What nobody expects to find among values."""


class Told:
    """What is told of one run. Made before it, so that new names can be told from old ones."""

    def __init__(self, names: dict, code: str, variables: dict) -> None:
        self._names = names
        self._before = set(names)
        self._code = code
        self._variables = variables
        self.report = ""
        """The part of the report that says it, with the comma before it; empty where it could not be told."""

    def listen(self, error: BaseException | None) -> None:
        """Takes note of the error, or else of the names; may run code of the user."""
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
            values, left_out = self._values()
            self.report = f',"told":{{"values":{{{",".join(values)}}},"left_out":[{",".join(left_out[:_NAMES])}]}}'
            return
        clean(error)
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        facts = {"type": type(error).__name__, "message": _message(error), "traceback": text[-_TEXT:]}
        parts = ",".join(f"{quote(key)}:{quote(fact)}" for key, fact in facts.items())
        self.report = f',"told":{{"error":{{{parts}}}}}'

    def _values(self) -> tuple[list[str], list[str]]:
        """The parts of the JSON object, and the names, quoted, for which there is none."""
        told, left_out = [], []
        room = _ROOM
        for name, imported in self._bound():
            value = self._names[name]
            part = _told(value, room)
            if part:
                told.append(f"{quote(name)}:{part}")
                room -= len(part.encode())
            elif not imported and not isinstance(value, _SILENT):
                left_out.append(quote(name))
        return told, left_out

    def _bound(self) -> list[tuple[str, bool]]:
        """The variables of the run and the names that its code bound itself, each with whether it was imported.

        Names that the code declared global are its own affair.
        """
        symbols = symtable.symtable(self._code, "<cell>", "exec").get_symbols()
        public = {symbol.get_name() for symbol in symbols if symbol.is_declared_global()}
        imported = {symbol.get_name() for symbol in symbols if symbol.is_imported()}
        assigned = {symbol.get_name() for symbol in symbols if symbol.is_assigned()}
        # Such as those that `exec` bound, or an import of all that a module has.
        new = {name for name in self._names.keys() - self._before if not name.startswith("__")}
        bound = ((imported | assigned | new) - public).union(self._variables)
        return [(name, name in imported) for name in self._names if name in bound]


def _message(error: BaseException) -> str:
    try:
        return str(error)[:_TEXT]
    except Exception:
        return "<its text cannot be made>"


def _told(value: object, room: int) -> str:
    """The value as JSON, that as a string; nothing where it cannot be said, or has no room."""
    if not _fits(value, room):
        return ""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()  # or quoting would change it
        part = quote(text)
        return part if len(part.encode()) <= room else ""
    except Exception:  # of the user's own classes, too
        return ""


def _fits(value: object, room: int) -> bool:
    """Whether it can fit, before anything is made of it: text of a large value could take all memory there is."""
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
