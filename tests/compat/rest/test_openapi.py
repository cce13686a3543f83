"""The server behaves as its OpenAPI description states, for any request."""

import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from ...mcp.serving import Server
from .conftest import BEARER, TOKEN

EXAMPLES = 5
"""The most examples of each kind, for each method of each path."""
LIMIT = 240.0

CONFIG = """
# Code that fails, libraries that are not in the index, and paths that lead outside are all valid values for a schema.
[checks]
positive_data_acceptance.expected-statuses = ["2xx", "400", "401", "403", "404"]
"""


def test_the_description_is_for_version_3_1_and_names_every_path(guarded: Server) -> None:
    document = httpx2.get(f"{guarded.url}/openapi.json", headers=BEARER).json()
    assert document["openapi"] == "3.1.0"
    assert {*document["paths"]} == {
        "/",
        "/health",
        "/execute_code/",
        "/libraries",
        "/files/{path}",
        "/artifacts",
        "/artifacts/{path}",
        "/limits",
        "/logs",
    }
    assert document["paths"]["/execute_code/"]["post"]["security"] == [{"bearer": []}]
    assert "security" not in document["paths"]["/health"]["get"]


@pytest.mark.timeout(LIMIT + 60)
def test_the_server_conforms_to_its_description(guarded: Server, tmp_path: Path) -> None:
    config = tmp_path / "schemathesis.toml"
    config.write_text(CONFIG)
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run", f"{guarded.url}/openapi.json"),
        *("--header", f"Authorization: Bearer {TOKEN}", "--max-examples", str(EXAMPLES), "--seed", "1", "--no-color"),
        *("--continue-on-failure", "--request-timeout", "60"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Tested: 10" in done.stdout, done.stdout
