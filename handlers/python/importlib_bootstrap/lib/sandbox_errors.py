"""Prints an error of a cell as Python prints it, without the runner's own stack frames."""

from __future__ import annotations

import linecache
import sys
import traceback

from sandbox_guard import INTERRUPTED


def print_error(error: BaseException, session) -> None:
    """Prints an error to standard error, with the code's own `sys.excepthook` if the code has set one."""
    if isinstance(error, SystemExit):
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
        return
    clean(error)
    if sys.excepthook is not sys.__excepthook__:
        sys.excepthook(type(error), error, error.__traceback__)
        return
    session.fill_linecache(linecache)
    traceback.print_exception(type(error), error, error.__traceback__)


def clean(error: BaseException) -> None:
    """Removes the runner's frames from the tracebacks of an error."""
    # The runner calls asyncio, and asyncio calls a cell that awaits.
    while _is_in(error.__traceback__, "asyncio.", "sandbox_"):
        error.__traceback__ = error.__traceback__.tb_next
    _strip(error, set())


def _strip(error: BaseException | None, seen: set[int]) -> None:
    """Removes the runner's frames from the tracebacks of an error, of its causes, contexts and grouped exceptions.

    They are at the start, at the end (the SIGINT handler), and in between (when matplotlib calls its backend).
    """
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    while _is_in(error.__traceback__, "sandbox_"):
        error.__traceback__ = error.__traceback__.tb_next
    trace = error.__traceback__
    while trace is not None:
        while _is_in(trace.tb_next, "sandbox_"):
            trace.tb_next = trace.tb_next.tb_next
        trace = trace.tb_next
    for other in (error.__cause__, error.__context__, *getattr(error, "exceptions", ())):
        if other is None or isinstance(other, BaseException):
            _strip(other, seen)


def _is_in(trace, *modules: str) -> bool:
    return trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith(modules)


def exit_code(error: BaseException | None) -> int:
    """Returns the exit code of a Python process that ends with this error."""
    if isinstance(error, SystemExit):
        code = error.code
        if code is None:
            return 0
        return int.__and__(code, 0xFF) if isinstance(code, int) else 1
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return 0 if error is None else 1
