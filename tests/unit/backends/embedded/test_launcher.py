"""What the launcher imports."""

import subprocess
import sys

from tests.cli.command import ROOT


def test_the_launcher_imports_little() -> None:
    """Every server starts one, and its first sandbox waits for it: libraries of the server would take four times as long."""
    code = "import sys, llm_sandbox_mcp.backends.embedded.launcher\nprint(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {"anyio", "asyncio", "email", "pydantic", "tomllib", "zipfile"}.isdisjoint(done.stdout.split())
