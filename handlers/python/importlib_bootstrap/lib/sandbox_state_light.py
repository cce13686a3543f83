"""Imports cloudpickle without the modules that it needs only for objects that the session cannot have.

Nearly all of the time of that import would go to these modules. They are stood for only while it is imported.
"""

from __future__ import annotations

import os
import pickle  # noqa: F401 - with all that it imports, before anything is stood for
import sys
from types import SimpleNamespace

SPARED = "dataclasses", "logging", "platform", "typing", "uuid"
"""The modules that are spared where the session has not imported them."""


def load_cloudpickle(known) -> None:
    """Imports it; `known` has the names of the modules that are needed in any case."""
    stood_for = {name: make() for name, make in _STUBS.items() if name not in known and name not in sys.modules}
    sys.modules.update(stood_for)
    try:
        import sandbox_cloudpickle  # noqa: F401
    finally:
        for name in stood_for:
            del sys.modules[name]


def _dataclasses() -> SimpleNamespace:
    kinds = ("_FIELD", "_FIELD_CLASSVAR", "_FIELD_INITVAR")
    return SimpleNamespace(
        _FIELD_BASE=type("_FIELD_BASE", (), {}), **{kind: SimpleNamespace(name=kind) for kind in kinds}
    )


def _logging() -> SimpleNamespace:
    return SimpleNamespace(Logger=type("Logger", (), {}), RootLogger=type("RootLogger", (), {}))


def _platform() -> SimpleNamespace:
    return SimpleNamespace(python_implementation=lambda: "CPython")


def _typing() -> SimpleNamespace:
    if sys.version_info < (3, 12):
        return SimpleNamespace(TypeVar=type("TypeVar", (), {}))
    from _typing import TypeVar  # the syntax of newer versions makes them without an import

    return SimpleNamespace(TypeVar=TypeVar)


def _uuid() -> SimpleNamespace:
    return SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=os.urandom(16).hex()))


_STUBS = {"dataclasses": _dataclasses, "logging": _logging, "platform": _platform, "typing": _typing, "uuid": _uuid}
