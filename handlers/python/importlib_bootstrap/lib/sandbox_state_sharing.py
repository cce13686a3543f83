"""Finds which variables share something, so that they are saved together; all others can be left out one by one."""

from __future__ import annotations

import sys
from types import BuiltinFunctionType, ModuleType

import sandbox_cloudpickle as cloudpickle

_PLAIN = (str, bytes)
"""Types of what may be written twice: nobody can change it, and only its identity is lost."""
_LONG = 1000
"""Bytes or characters from which on it is written once."""
_GET = b"j"
"""In a pickle, the code before the four bytes of a large number in the memo."""
_MARK = b"\x1f\xa6\xd9"
"""The upper three bytes of numbers that no memo is large enough for."""
_MANY = 1000
"""Such values that two variables share, from which on these are saved together: twice, they would take too much."""


class Sharing:
    """Variables, in groups that share nothing with each other."""

    def __init__(self, is_anchor) -> None:
        self._is_anchor = is_anchor
        self._groups: list[list[int]] = []
        self._owners: dict[int, tuple[int, object]] = {}
        """By identity, the first variable that has an object; the object stays, so that no other one is like it."""
        self._named: set[int] = set()
        """What pickles only name."""
        self._plain: list[tuple[int, dict]] = []

    def add(self, memo: dict) -> None:
        """Adds the next variable, with what its pickler knows then."""
        number, owners, plain = len(self._groups), self._owners, {}
        self._groups.append([number])
        for each, (_, value) in memo.items():
            if type(value) in _PLAIN and len(value) < _LONG:
                plain[each] = value
            elif each not in owners:
                owners[each] = number, value
            elif each not in self._named and self._groups[owners[each][0]] is not self._groups[number]:
                if not self._is_anchor(each) and _is_own(value):
                    self._join(owners[each][0], number)
                else:
                    self._named.add(each)
        if len(plain) >= _MANY:
            for other, values in self._plain:
                if len(plain.keys() & values.keys()) >= _MANY:
                    self._join(other, number)
            self._plain.append((number, plain))

    def marks(self) -> dict:
        """All that the variables have, as a memo with numbers by which `marked` finds in a pickle what was met."""
        base = int.from_bytes(b"\0" + _MARK, "little")
        return {
            each: (base + number % 256, value)
            for each, (number, value) in self._owners.items()
            if not self._is_anchor(each) and _is_own(value)
        }

    def marked(self, pickled) -> set[int]:
        """The variables that what has this pickle shares something with; some others may be among them."""
        found, at = set(), pickled.find(_MARK)
        while at >= 0:
            if pickled[at - 2 : at - 1] == _GET:
                found.update(range(pickled[at - 1], len(self._groups), 256))
            at = pickled.find(_MARK, at + 1)
        return found

    def groups(self) -> list[list[int]]:
        """The numbers of the variables, in the order in which they were added."""
        return [group for number, group in enumerate(self._groups) if group[:1] == [number]]

    def take(self, numbers: set[int]) -> list[int]:
        """Takes out the groups of these variables, and returns all that are in them."""
        taken = sorted({each for number in numbers for each in self._groups[number]})
        for number in taken:
            self._groups[number] = []
        return taken

    def _join(self, one: int, other: int) -> None:
        if self._groups[one] is not self._groups[other]:
            joined = sorted(self._groups[one] + self._groups[other])
            for number in joined:
                self._groups[number] = joined


def _is_own(value: object) -> bool:
    """Whether a value is of the session, and not one of a module, which a pickle only names."""
    kind = type(value)
    if kind is BuiltinFunctionType:
        return False
    for each in type.__dict__["__mro__"].__get__(kind):
        if [type.__dict__[name].__get__(each) for name in ("__module__", "__name__")] == ["numpy", "dtype"]:
            return False  # there is one for all arrays that have the same
    try:
        if kind is ModuleType:
            return sys.modules.get(value.__name__) is not value
        return not callable(value) or cloudpickle._lookup_module_and_qualname(value) is None
    except Exception:  # a hook of it
        return True
