"""Compiles and runs cells in the user's `__main__`, and keeps their source for tracebacks."""

from __future__ import annotations

import builtins
import sys

# `ast` would load `re` and more; compiling needs only its C core.
from _ast import Expr, Expression, PyCF_ALLOW_TOP_LEVEL_AWAIT, PyCF_ONLY_AST
from itertools import islice

_COROUTINE = 0x80
"""`inspect.CO_COROUTINE`"""
RESULT_LIMIT = 20_000
"""The most characters of a result that are reported."""
DRAWN_TEXT_LIMIT = 1000
"""The most characters of a value's text if there is a figure of it: a longer text may be just the figure's data."""


class Session:
    """The state that lasts from one cell to the next."""

    def __init__(self) -> None:
        self._main = type(sys)("__main__")
        self._main.__builtins__ = builtins
        builtins.display = display
        sys.modules["__main__"] = self._main
        self._sources: dict[str, tuple] = {}
        self._loop = None
        self.result: str | None = None
        """The value of the last cell's last expression, as text."""

    @property
    def names(self) -> dict:
        """The names of the code and their values."""
        return self._main.__dict__

    def run(self, number: int, source: str, variables: dict, instead: str | None = None) -> None:
        """Runs one cell, or `instead` if its source cannot be compiled; raises the errors of its code unchanged."""
        self.result = None
        name = f"<cell {number}>"
        self._remember(name, source)
        names = self.names
        names.update(variables)
        statements, expression = _compile(source, name, instead)
        if statements is not None:
            self._evaluate(statements, names)
        if expression is not None:
            value = self._evaluate(expression, names)
            if value is not None:
                builtins._ = value
                self.result, _ = present(value)

    def fill_linecache(self, linecache) -> None:
        """Gives Python's line cache the source of every cell."""
        linecache.cache.update(self._sources)

    def _remember(self, name: str, source: str) -> None:
        # Split where the compiler counts a new line: str.splitlines would also split at form feeds and others.
        lines = [line + "\n" for line in source.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
        self._sources[name] = (len(source), None, lines, name)
        if "linecache" in sys.modules:
            self.fill_linecache(sys.modules["linecache"])

    def _evaluate(self, code, names: dict):
        value = eval(code, names)
        return self._wait(value) if code.co_flags & _COROUTINE else value

    def _wait(self, coroutine):
        """Runs a coroutine on the session's event loop; an interrupt cancels it first, so that it can clean up."""
        try:
            import asyncio

            if self._loop is None or self._loop.is_closed():
                self._loop = asyncio.new_event_loop()
                asyncio.set_event_loop(self._loop)
            task = self._loop.create_task(coroutine)
        except BaseException:
            coroutine.close()  # otherwise Python would warn that it was never awaited
            raise
        try:
            return self._loop.run_until_complete(task)
        except BaseException as error:
            if task.done():
                if not task.cancelled():
                    task.exception()  # retrieved, otherwise asyncio would warn about it later
                raise
            if not isinstance(error, KeyboardInterrupt):
                task.cancel()
                raise
        task.cancel()
        try:
            self._loop.run_until_complete(task)
        except asyncio.CancelledError as cancelled:
            # Shows where the code was waiting, not where the loop was. Before 3.11 the context has that traceback.
            waiting = cancelled.__context__ or cancelled
            raise KeyboardInterrupt().with_traceback(waiting.__traceback__) from None
        raise KeyboardInterrupt


def display(*values: object, **_options: object) -> None:
    """Shows values in the middle of a cell, like the function of this name in notebooks."""
    for value in values:
        text, drawn = present(value)
        if not drawn:
            print(text)


def present(value: object) -> tuple[str, bool]:
    """Returns a value as text, and whether a figure of it was written too."""
    kind = type(value)
    drawn = ""
    if kind.__module__ != "builtins":
        from sandbox_rich import draw

        drawn = draw(value)
    text = show(value)
    if drawn and len(text) > DRAWN_TEXT_LIMIT:
        text = f"<{kind.__module__}.{kind.__qualname__}, see {drawn}>"
    return text, bool(drawn)


def show(value: object) -> str:
    """Returns the `repr` of a value, cut to `RESULT_LIMIT` characters."""
    # Each element of a container and each character of a string takes at least one character of the repr. So the part
    # that is cut off here could not be shown anyway, and 100 million elements are never turned into text.
    kind = type(value)
    if kind in (str, bytes, bytearray, list, tuple):
        value = value[: RESULT_LIMIT + 1]
    elif kind is dict and len(value) > RESULT_LIMIT:
        value = dict(islice(value.items(), RESULT_LIMIT + 1))
    # Through the base class: __repr__ may return a str subclass with methods of its own.
    text = str.__getitem__(repr(value), slice(RESULT_LIMIT + 1))
    return text if len(text) <= RESULT_LIMIT else text[: RESULT_LIMIT - 1] + "…"


def _compile(source: str, name: str, instead: str | None = None) -> tuple:
    """Compiles a cell, or else `instead`, into its statements and its last expression; either may be None."""

    def build(tree, mode: str, flags: int = PyCF_ALLOW_TOP_LEVEL_AWAIT):
        return compile(tree, name, mode, flags, dont_inherit=True)

    try:
        tree = build(source, "exec", PyCF_ONLY_AST | PyCF_ALLOW_TOP_LEVEL_AWAIT)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], Expr) else None
        return (
            build(tree, "exec") if tree.body else None,
            build(Expression(last.value), "eval") if last else None,
        )
    except SyntaxError as error:
        if instead is None:
            _complete(error, source, name)
            raise
    return _compile(instead, name)


def _complete(error: SyntaxError, source: str, name: str) -> None:
    """Gives an error its source line: those found after parsing have none, because the compiler looks for a file."""
    if error.text is None and error.filename == name and error.lineno:
        error.text = "".join(source.splitlines(True)[error.lineno - 1 : error.lineno])
