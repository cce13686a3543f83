"""The page for users of sandbox_for_llm_code in configs/migration.md: its commands work, its claims are true."""

import re
import shlex
from collections.abc import Iterator

import httpx2
import pytest

from llm_sandbox_mcp.cli.parser import build
from llm_sandbox_mcp.host.folders import CONFIGS

from ...cli.command import ARGV
from ...mcp.serving import Server, launch, stop
from .calling import execute

PAGE = (CONFIGS / "migration.md").read_text(encoding="utf-8").partition("\n## sandbox_for_llm_code\n")[2]
PORT = "1729"
"""The port that clients use; the test uses a free port instead, because another program may have this one."""


def block(kind: str) -> str:
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that was started with the command on the page."""
    folder = tmp_path_factory.mktemp("moved")
    (folder / "mine.toml").write_text(block("toml"))
    _, *options = shlex.split(block("sh"))
    assert build().parse_args(options).port == int(PORT)
    server = launch([*ARGV, *("0" if option == PORT else option for option in options)], folder)
    yield server
    assert "Traceback" not in stop(server)


def test_a_client_can_use_the_server(server: Server) -> None:
    assert httpx2.get(f"{server.url}/health").json()["status"] == "healthy"
    ran = execute(server, "out=x+y", local_dict={"x": 10, "y": 2}).json()
    assert (ran["result"], ran["success"]) == ({"x": 10, "y": 2, "out": 12}, True)


def test_a_function_can_call_itself_and_use_imports(server: Server) -> None:
    code = "import math\ndef f(n):\n    return math.prod((n, f(n - 1))) if n else 1\nout = f(5)"
    assert execute(server, code).json()["result"] == {"out": 120}


@pytest.mark.parametrize(("status", "parts"), [("0", {"success": True}), ("3", {"error_type": "SystemExit"})])
def test_the_answer_reports_how_code_exited(server: Server, status: str, parts: dict[str, object]) -> None:
    answer = execute(server, f"import sys\nsys.exit({status})").json()
    assert answer.items() >= parts.items()
