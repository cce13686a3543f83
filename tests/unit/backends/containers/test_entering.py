"""The program that enters a container's network: any Python can run it, since it needs no other package."""

import subprocess
import sys
from pathlib import Path

import llm_sandbox_mcp


def test_it_starts_without_any_package() -> None:
    folder = Path(llm_sandbox_mcp.__file__).parents[1]
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); import llm_sandbox_mcp.backends.containers.entering"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
