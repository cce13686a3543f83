"""Compiles and runs cells in the user's `__main__`, and keeps their source for tracebacks."""

from __future__ import annotations

import builtins
import gc
import os
import sys

# `ast` would load `re` and more; compiling needs only its C core.
from _ast import Expr, Expression, ImportFrom, Module, PyCF_ALLOW_TOP_LEVEL_AWAIT, PyCF_ONLY_AST
from _thread import get_ident
from itertools import islice

_COROUTINE = 0x80
"""`inspect.CO_COROUTINE`"""
RESULT_LIMIT = 20_000
"""The most characters of a result that are reported."""
DRAWN_TEXT_LIMIT = 1000
"""The most characters of a value's text if there is a figure of it: a longer text may be just the figure's data."""


class Start:
    """What an interpreter has before any code runs, to find later what code has changed."""

    def __init__(self) -> None:
        self.builtins = {**vars(builtins)}
        self.names = {*vars(sys.modules["__main__"])}
        self.environment = {**os.environ}
        self.path = [*sys.path]
        self.folder = os.getcwd()


class Session:
    """The state that lasts from one cell to the next."""

    def __init__(self) -> None:
        self._main = type(sys)("__main__")
        self._main.__builtins__ = builtins
        builtins.display = display
        sys.modules["__main__"] = self._main
        self._thread = get_ident()
        self._loop = None
        self._awaits = False
        self._last: object = builtins  # no code has this as `_`
        self.sources: dict[str, tuple] = {}
        """The source of every cell, as entries of Python's line cache."""
        self.start: Start | None = None
        """What the interpreter had before any code ran."""
        self.leaves = False
        """Whether the code has left a function for the interpreter's exit."""
        self.result: str | None = None
        """The value of the last cell's last expression, as text."""

    @property
    def names(self) -> dict:
        """The names of the code and their values."""
        return self._main.__dict__

    @property
    def loop(self):
        """The event loop of the code; None if it has not imported asyncio."""
        return None if self._loop is None else self._loop.current

    def run(self, number: int, source: str, variables: dict, instead: str | None = None) -> None:
        """Runs one cell, or `instead` if its source cannot be compiled; raises the errors of its code unchanged."""
        self.result = None
        name = f"<cell {number}>"
        self._remember(name, source)
        names = self.names
        names.pop("__warningregistry__", None)  # each cell gives its warnings, as each script does
        names.update(variables)
        try:
            statements, expression = _compile(source, name)
        except SyntaxError as error:
            if instead is None:
                _complete(error, source, name)
                raise
            self._remember(name, instead)
            statements, expression = _compile(instead, name)
        self._awaits = any(part.co_flags & _COROUTINE for part in (*statements, expression) if part)
        if self._loop is not None:
            self._loop.begin()
            if not self._awaits:
                self._loop.go_on()
        for part in statements:
            self._evaluate(part, names)
        if expression is not None:
            value = self._evaluate(expression, names)
            if value is not None:
                # Not over a function `_` that the code has put there, as gettext.install does.
                if getattr(builtins, "_", self._last) is self._last:
                    builtins._ = self._last = value
                self.result, _ = present(value)

    def finish(self, failed: bool) -> None:
        """Ends the tasks of the session: of code that awaits nothing itself, they are all there is to wait for."""
        if self._loop is not None:
            self._loop.finish(wait=not (failed or self._awaits))

    def let_go(self) -> None:
        """Lets go of the code's objects, as an interpreter that exits does: open files then write what they hold."""
        if len(sys._current_frames()) > 1:
            return  # daemon threads still use them; in an interpreter that exits they stand still
        names = self.names
        for name in [*names]:
            # What a `__del__` may use stays: functions, classes, modules and constants.
            if gc.is_tracked(names[name]) and not isinstance(names[name], (type, type(display), type(sys))):
                names[name] = None
        self._last = builtins._ = None
        gc.collect()

    def fill_linecache(self, linecache) -> None:
        """Gives Python's line cache the source of every cell."""
        linecache.cache.update(self.sources)

    def give_to_state(self, state) -> None:
        """Gives the module that saves and opens variables this session."""
        state.session = self

    def enter_loop(self, asyncio) -> None:
        """Gives the session an event loop: the code has imported asyncio."""
        from sandbox_loop import SessionLoop

        self._loop = SessionLoop(asyncio, self._thread)

    def nest_anyio(self, eventloop) -> None:
        """Lets cells that await call anyio.run, as they can call asyncio.run."""
        import asyncio  # noqa: F401 - after this import there is a loop

        eventloop.run = self._loop.aside(eventloop.run)

    def show_in_inspect(self, inspect) -> None:
        """Lets `inspect` find the source of classes, and no frame of the runner."""
        from sandbox_frames import hide_from_inspect
        from sandbox_source import find_classes

        hide_from_inspect(inspect)
        find_classes(inspect, self.sources)

    def prepare_processes(self, spawn) -> None:
        """Gives processes that start fresh what the code defines."""
        from sandbox_fresh import prepare

        prepare(spawn, self)

    def note_exit_functions(self, register):
        """Wraps atexit.register: `leaves` becomes true if the code itself calls it."""

        def register_noted(function, *args, **kwargs):
            self.leaves = self.leaves or sys._getframe(1).f_globals is self.names
            return register(function, *args, **kwargs)

        return register_noted

    def _remember(self, name: str, source: str) -> None:
        # Split where the compiler counts a new line: str.splitlines would also split at form feeds and others.
        lines = [line + "\n" for line in source.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
        self.sources[name] = (len(source), None, lines, name)
        if "linecache" in sys.modules:
            self.fill_linecache(sys.modules["linecache"])

    def _evaluate(self, code, names: dict):
        value = eval(code, names)
        return self._wait(value) if code.co_flags & _COROUTINE else value

    def _wait(self, coroutine):
        try:
            import asyncio  # noqa: F401 - after this import there is a loop

            task, context = self._loop.start(coroutine)
        except BaseException:
            coroutine.close()  # otherwise Python would warn that it was never awaited
            raise
        return self._loop.wait(task, context)


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


def _compile(source: str, name: str) -> tuple:
    """Compiles a cell into its statements, in one or more parts, and its last expression, which may be None."""

    def build(tree, mode: str = "exec", flags: int = PyCF_ALLOW_TOP_LEVEL_AWAIT):
        return compile(tree, name, mode, flags, dont_inherit=True)

    tree = build(source, flags=PyCF_ONLY_AST | PyCF_ALLOW_TOP_LEVEL_AWAIT)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], Expr) else None
    statements = [build(tree)] if tree.body else []
    if statements and statements[0].co_flags & _COROUTINE:
        # Those that await nothing run outside of the event loop, where they can run loops themselves, even this one.
        future = [node for node in tree.body if isinstance(node, ImportFrom) and node.module == "__future__"]
        statements = [build(Module([*future, node], [])) for node in tree.body]
    return statements, build(Expression(last.value), "eval") if last else None


def _complete(error: SyntaxError, source: str, name: str) -> None:
    """Gives an error its source line: those found after parsing have none, because the compiler looks for a file."""
    if error.text is None and error.filename == name and error.lineno:
        error.text = "".join(source.splitlines(True)[error.lineno - 1 : error.lineno])
