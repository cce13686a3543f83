"""What a command imports: a package that it does not use would delay each of its starts."""

import subprocess
import sys

PROGRAM = """
import sys
import llm_sandbox_mcp.cli.run, llm_sandbox_mcp.wiring, llm_sandbox_mcp.backends.embedded.backend
print(*sorted({"docker", "h2", "httpcore2", "httpx2", "kubernetes", "mcp", "uvicorn"} & {*sys.modules}))
"""


def test_a_run_imports_no_http_client_and_nothing_of_a_server() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.split() == []
