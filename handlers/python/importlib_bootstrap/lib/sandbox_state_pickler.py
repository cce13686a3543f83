"""Pickles variables so that functions still belong to their session, and what cannot be kept is refused."""

from __future__ import annotations

import copyreg
import functools
import re
import sys
from io import BufferedRandom, BufferedReader, BufferedWriter, FileIO, TextIOWrapper
from pickle import PicklingError
from types import CellType, CodeType, FunctionType, ModuleType

import sandbox_cloudpickle as cloudpickle
import sandbox_state_parts as parts

_IMPORT = re.compile(r"^\s*import\s+(.+)", re.MULTILINE)
_FILES = {
    TextIOWrapper: ("r", -1),
    BufferedReader: ("rb", -1),
    BufferedWriter: ("wb", -1),
    BufferedRandom: ("r+b", -1),
    FileIO: ("rb", 0),
}
"""The mode and the buffering with which a file of each type is opened."""
_FEWEST = 1 << 12
"""Numbers of the memo that are kept free for marks, at least."""
_NO_NUMBER = 1 << 31
"""One that no pickle has."""
_DOTTED = re.compile(r"\w+(?:\.\w+)+")


class _Anchor:
    """Is pickled in place of something that the session to be opened has of its own."""

    def __init__(self, make) -> None:
        self._make = make

    def __reduce__(self):
        return self._make, ()


class SessionPickler(cloudpickle.Pickler):
    """A pickler for one variable after the other, which knows what those since the last `begin` share."""

    def __init__(self, file, session, buffer_callback) -> None:
        self._names = session.names
        self._below = _imported_below(session)
        self.dispatch_table = {
            **copyreg.dispatch_table,
            **cloudpickle.Pickler._dispatch_table,
            CellType: lambda cell: (parts.cell, ()),  # what is in it comes with the functions that have it
            CodeType: _reduce_code,
            ModuleType: self._reduce_module,
            **dict.fromkeys(_FILES, _reduce_file),
            memoryview: _reduce_view,
            functools._lru_cache_wrapper: _reduce_cached,
            functools.cached_property: _reduce_property,
        }
        super().__init__(file, 5, buffer_callback)
        self._anchored: dict = {}

    def dump_anchors(self) -> None:
        """Writes what stands for the session's own names and its `__main__`, wherever they are met later."""
        # Nothing is read twice, so classes need no random numbers, which would make each pickle another one.
        cloudpickle._get_or_create_tracker_id = lambda definition: None
        own = {_Anchor(parts.names): self._names, _Anchor(parts.main): sys.modules["__main__"]}
        self.dump([*own, []])
        memo = self.memo.copy()
        for anchor, each in own.items():
            memo[id(each)] = memo.pop(id(anchor))[0], each
        self._anchored = memo

    def begin(self, marks: dict | None = None) -> int:
        """Forgets all but the anchors; returns how many numbers of the memo then are for nothing.

        What is in `marks` is not pickled but named by its number there.
        """
        if marks is None:
            self.memo = self._anchored
            return 0
        count = _FEWEST
        while count < len(marks):
            count *= 2  # not one by one, so that pickles stay the same when there are some more marks
        empty = {number: (_NO_NUMBER, object()) for number in range(count - len(marks))}
        self.memo = {**self._anchored, **marks, **empty}
        return count

    def known(self) -> dict:
        """All that was pickled, by identity."""
        return self.memo.copy()

    def go_on(self, known: dict) -> None:
        """Goes on from where this was known."""
        self.memo = known

    def is_anchor(self, identity: int) -> bool:
        """Whether something has an anchor in its place, or belongs to one."""
        return identity in self._anchored

    def forget(self, holder: list) -> None:
        """Forgets what was pickled since this list, which was pickled in part."""
        memo = self.memo.copy()
        if id(holder) in memo:
            last = range(memo[id(holder)][0], len(memo))
            self.memo = {each: entry for each, entry in memo.items() if entry[0] not in last}

    def _dynamic_function_reduce(self, function: FunctionType):
        attributes, used = dict(function.__dict__), {}
        if function.__globals__ is self._names:
            namespace, slots = self._names, _slots(function)
        else:
            _, namespace, *_ = self._function_getnewargs(function)
            attributes, slots = cloudpickle._function_getstate(function)
            used = slots.pop("__globals__")
            del slots["__closure__"]
        cells = function.__closure__
        contents = [(cell, cell.cell_contents) for cell in cells or () if _is_filled(cell)]
        made = function.__code__, namespace, cells
        return parts.function, made, (attributes, slots, used, contents), None, None, parts.fill

    def _reduce_module(self, module: ModuleType):
        if module.__name__ in sys.modules:
            return parts.module, (module.__name__, self._below.get(module.__name__, ()))
        return cloudpickle._module_reduce(module)


def _imported_below(session) -> dict:
    """The modules below others that the code has imported by a statement such as `import xml.dom`."""
    below: dict[str, tuple] = {}
    for _, _, lines, _ in session.sources.values():
        for statement in _IMPORT.findall("".join(lines)):
            for name in _DOTTED.findall(statement):
                if name in sys.modules:
                    top = name.partition(".")[0]
                    below[top] = (*below.get(top, ()), name)
    return below


def _slots(function: FunctionType) -> dict:
    kept = ("__name__", "__qualname__", "__kwdefaults__", "__defaults__", "__module__", "__doc__", "__type_params__")
    slots = {name: getattr(function, name) for name in kept if hasattr(function, name)}
    try:
        slots["__annotations__"] = function.__annotations__
    except Exception:  # they name something that is not there; newer versions evaluate them only now
        slots["__annotate__"] = function.__annotate__
    return slots


def _is_filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty one raises
        return True
    except ValueError:
        return False


def _reduce_code(code: CodeType):
    _, arguments = cloudpickle._code_reduce(code)
    arguments = tuple(code.co_filename if each == "<dynamic-code>" else each for each in arguments)
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return parts.code, (code.co_filename, code.co_name, code.co_firstlineno, parameters, code.co_freevars, arguments)


def _reduce_file(file):
    for name in ("stdin", "stdout", "stderr"):
        if file is getattr(sys, name):
            return getattr, (sys, name)
    if not file.closed:
        raise PicklingError("a file that is open")
    return parts.closed_file, _FILES[type(file)]


def _reduce_view(view: memoryview):
    if type(view.obj) not in (bytes, bytearray) or view.format != "B" or view.nbytes != len(view.obj):
        raise PicklingError("a view of memory that belongs to something else")
    return parts.view, (view.obj,)


def _reduce_property(cached):
    # Older versions have a lock in it.
    return functools.cached_property, (cached.func,), {"attrname": cached.attrname, "__doc__": cached.__doc__}


def _reduce_cached(cached):
    if cached.__module__ != "__main__":
        return cached.__reduce__()
    parameters = {"maxsize": cached.cache_info().maxsize}
    if hasattr(cached, "cache_parameters"):  # since Python 3.9
        parameters = cached.cache_parameters()
    return parts.cached, (cached.__wrapped__, parameters)
