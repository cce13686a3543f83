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


def _text(printed: Output, errors: str) -> str:
    text = printed.text
    if printed.replaced and errors == "strict":
        at = text.index("\ufffd")
        raise UnicodeDecodeError("utf-8", text.encode(), at, at + 1, "the code printed what is no UTF-8")
    return text.replace("\ufffd", "") if printed.replaced and errors == "ignore" else text
