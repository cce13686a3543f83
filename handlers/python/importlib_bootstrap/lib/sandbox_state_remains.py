"""Finds what is left of a variable that cannot be opened, for the other variables that share parts of it."""

from __future__ import annotations

import gc
import pickle
import sys
from types import FunctionType, ModuleType

_COMPLETING = "fill", "_class_setstate"
"""The functions that complete the object that they get."""


def _new(kind, *arguments, **named):
    return kind.__new__(kind, *arguments, **named)


class Missing:
    """Stands for an object that could not be made."""


class Remains(pickle._Unpickler):
    """An unpickler that goes on after errors; a careful one calls nothing, because a call would not come back."""

    dispatch = {**pickle._Unpickler.dispatch}  # noqa: RUF012 - as in the class above

    def __init__(self, file, memo: dict, buffers, careful: bool) -> None:
        super().__init__(file, buffers=buffers)
        self.memo = memo
        self.missing: list = []
        """The objects that could not be made, and those that are not complete."""
        self._careful = careful

    def _call(self, function, *arguments, **named):
        try:
            if self._careful or any(type(each) is Missing for each in arguments):
                raise LookupError
            return function(*arguments, **named)
        except Exception:
            if getattr(function, "__name__", "") in _COMPLETING:
                self.missing += arguments[:1]
            return self._miss()

    def _miss(self) -> Missing:
        self.missing.append(Missing())
        return self.missing[-1]

    def _try(self, load) -> None:
        try:
            load(self)
        except Exception:
            self.missing.append(self.stack[-1])

    def _load_reduce(self) -> None:
        arguments = self.stack.pop()
        self.stack[-1] = self._call(self.stack[-1], *arguments)

    def _load_new(self) -> None:
        arguments = self.stack.pop()
        self.stack[-1] = self._call(_new, self.stack[-1], *arguments)

    def _load_new_named(self) -> None:
        named, arguments = self.stack.pop(), self.stack.pop()
        self.stack[-1] = self._call(_new, self.stack[-1], *arguments, **named)

    def _load_global(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        try:
            if self._careful and module not in sys.modules:
                raise LookupError
            self.stack.append(self.find_class(module, name))
        except Exception:
            self.stack.append(self._miss())

    def _load_next_buffer(self) -> None:
        try:
            self.stack.append(next(self._buffers))
        except Exception:
            self.stack.append(self._miss())

    def _load_readonly_buffer(self) -> None:
        if type(self.stack[-1]) is not Missing:
            self.load_readonly_buffer()

    dispatch[pickle.NEXT_BUFFER[0]] = _load_next_buffer
    dispatch[pickle.READONLY_BUFFER[0]] = _load_readonly_buffer
    dispatch[pickle.REDUCE[0]] = _load_reduce
    dispatch[pickle.NEWOBJ[0]] = _load_new
    dispatch[pickle.NEWOBJ_EX[0]] = _load_new_named
    dispatch[pickle.STACK_GLOBAL[0]] = _load_global
    for _code in (pickle.BUILD, pickle.APPEND, pickle.APPENDS, pickle.SETITEM, pickle.SETITEMS, pickle.ADDITEMS):
        dispatch[_code[0]] = lambda self, _load=pickle._Unpickler.dispatch[_code[0]]: self._try(_load)


def reaches(value: object, missing: dict, names: dict) -> str:
    """The name of the variable that `value` shares something incomplete with; `missing` has it for each identity."""
    seen, left = {id(names)}, [value]
    for each in left:  # grows during the loop
        if id(each) in missing:
            return missing[id(each)][1]
        foreign = isinstance(each, (type, FunctionType)) and getattr(each, "__module__", "") != "__main__"
        if id(each) not in seen and not foreign and not isinstance(each, ModuleType):
            seen.add(id(each))
            left += gc.get_referents(each)
    return ""
