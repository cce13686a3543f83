"""Prints an error of a cell as Python prints it, without the runner's own frames."""

from __future__ import annotations

import sys

_INNER = ("sandbox_", "asyncio.")


def print_error(error: BaseException, session) -> None:
    """Prints to standard error, through the code's own `sys.excepthook` if it has set one."""
    if isinstance(error, SystemExit):
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
        return
    trace = error.__traceback__
    # Only frames before the code's first one: asyncio is among them when a cell awaits.
    while trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith(_INNER):
        trace = trace.tb_next
    error.__traceback__ = trace
    if sys.excepthook is not sys.__excepthook__:
        sys.excepthook(type(error), error, trace)
        return
    try:
        import linecache
        import traceback

        session.fill_linecache(linecache)
        traceback.print_exception(type(error), error, trace)
    except Exception:
        # The code has broken the import system: the interpreter's own printer needs nothing of it.
        sys.__excepthook__(type(error), error, trace)


def exit_code(error: BaseException | None) -> int:
    """Gives the exit code that a Python process ending with this error would have."""
    if isinstance(error, SystemExit):
        code = error.code
        if code is None:
            return 0
        return int.__and__(code, 0xFF) if isinstance(code, int) else 1
    if isinstance(error, KeyboardInterrupt):
        return 130
    return 0 if error is None else 1
