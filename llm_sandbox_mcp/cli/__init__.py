"""The command line. One module per command; only the chosen one is imported, so that a server starts fast."""

import importlib
import sys
from collections.abc import Mapping, Sequence

from ..base.errors import SandboxError
from ..base.text import one_line
from .parser import parse
from .words import in_words

FAILED = 2
"""Exit status when something other than the code failed."""
_INTERRUPTED = 130
_BROKEN_PIPE = 141


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Runs one command and returns its exit status; an error is printed as one line on stderr."""
    options = parse(argv)
    try:
        status: int = importlib.import_module(f"{__name__}.{options.module}").main(options, environ)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:
        match _unwrapped(error):
            case SandboxError() as expected:
                sys.stderr.write(f"llm-sandbox-mcp: {one_line(in_words(expected))}\n")
                return FAILED
            case BrokenPipeError():
                return _BROKEN_PIPE
        raise
    return status


def _unwrapped(error: Exception) -> Exception:
    """The exception inside of groups that contain only it: task groups wrap what is raised in their scope."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
