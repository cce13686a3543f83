"""The command line. One module per command, imported only when it is the one, since a server's start is waited for."""

import importlib
import sys
from collections.abc import Mapping, Sequence

from ..errors import SandboxError
from .parser import parse

FAILED = 2
"""Exit status when something of ours, not the code, went wrong."""
_INTERRUPTED = 130
_BROKEN_PIPE = 141


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Runs one command and returns its exit status; errors come as one line on stderr."""
    options = parse(argv)
    try:
        status: int = importlib.import_module(f"{__name__}.{options.module}").main(options, environ)
    except SandboxError as error:
        sys.stderr.write(f"llm-sandbox-mcp: {error}\n")
        return FAILED
    except BrokenPipeError:
        return _BROKEN_PIPE
    except KeyboardInterrupt:
        return _INTERRUPTED
    return status
