"""What a session of LLM Sandbox's kind says of a run."""

from ..results import Execution, Output
from .values import ConsoleOutput


def output(done: Execution, errors: str) -> ConsoleOutput:
    """Its outputs and its exit code; `errors` says what to do with what is no UTF-8, as `bytes.decode` takes it."""
    return ConsoleOutput(done.exit_code, _told(done, errors), _text(done.stdout, errors), notes=done.notes)


def _told(done: Execution, errors: str) -> str:
    """What code wrote to standard error, and why it was stopped where it was."""
    text = _text(done.stderr, errors)
    if done.status in ("ok", "error"):
        return text
    gap = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{gap}{': '.join(filter(None, (done.status, '; '.join(done.notes))))}\n"


def can_decode(errors: object) -> bool:
    """Whether `bytes.decode` can be told to do this with what is no UTF-8."""
    try:
        b"\xff".decode(errors=errors)  # type: ignore[arg-type]
    except UnicodeDecodeError:
        return True
    except (LookupError, TypeError):  # some are for encoding alone
        return False
    return True


def _text(printed: Output, errors: str) -> str:
    return printed.text if printed.raw is None else printed.raw.decode(errors=errors)
