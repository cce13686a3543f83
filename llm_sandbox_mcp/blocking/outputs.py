"""The results of runs, in the form that LLM Sandbox's sessions return."""

from ..results import Execution, Output
from .values import ConsoleOutput


def output(done: Execution, errors: str) -> ConsoleOutput:
    """The outputs and the exit code of a run; `errors` is the error handler of `bytes.decode` for invalid UTF-8."""
    return ConsoleOutput(done.exit_code, _stderr(done, errors), _text(done.stdout, errors), notes=done.notes)


def _stderr(done: Execution, errors: str) -> str:
    """What code wrote to standard error, followed by the reason if it was stopped."""
    text = _text(done.stderr, errors)
    if done.status in ("ok", "error"):
        return text
    gap = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{gap}{': '.join(filter(None, (done.status, '; '.join(done.notes))))}\n"


def can_decode(errors: object) -> bool:
    """Whether `bytes.decode` accepts this error handler."""
    try:
        b"\xff".decode(errors=errors)  # type: ignore[arg-type]
    except UnicodeDecodeError:
        return True
    except (LookupError, TypeError):  # some handlers are only for encoding
        return False
    return True


def _text(printed: Output, errors: str) -> str:
    return printed.text if printed.raw is None else printed.raw.decode(errors=errors)
