"""The command `llm-sandbox-mcp`, and the only reader of the environment in this package."""

import os
import signal
import sys

from .cli import FAILED
from .cli import main as run

_ON_WINDOWS = (
    "llm-sandbox-mcp: Windows itself has no sandboxes that it could use; run it in WSL 2: "
    "`wsl --install`, then the same command there\n"
)


def main() -> int:
    """Runs the command line of this process and returns its exit status."""
    if sys.platform == "win32":
        sys.stderr.write(_ON_WINDOWS)
        return FAILED
    # If SIGCHLD is ignored, which is inherited, the kernel keeps no exit status of the processes that we start.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return run(sys.argv[1:], dict(os.environ))


if __name__ == "__main__":
    sys.exit(main())
