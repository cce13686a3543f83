"""Runs programs on the server that the environment names, each in a sandbox of its own, some side by side."""

import json
import os
import secrets
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

URL = os.environ["LLM_SANDBOX_URL"]
TOKEN = Path(os.environ["LLM_SANDBOX_TOKEN_FILE"]).read_text()
TASK = int(os.environ.get("SLURM_ARRAY_TASK_ID", "0"))
PROGRAMS = [(f"out = n ** {power}", {"n": TASK + 2}) for power in range(8)]


def run(program: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """The server's answer, of code that failed too."""
    code, variables = program
    body = {"code": code, "local_dict": variables, "session_id": secrets.token_hex(16)}
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{URL}/execute_code/", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request) as answer:
            said: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code != 400:
            raise
        said = json.load(error)
    return said


with ThreadPoolExecutor(4) as side_by_side:
    for said in side_by_side.map(run, PROGRAMS):
        print(said["result"]["out"] if said["success"] else said["error"])
