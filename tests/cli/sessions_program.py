"""A program that uses the library, run by an ordinary user: reports as JSON facts about its sandboxes."""

import ctypes
import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio

from llm_sandbox_mcp.base.errors import SandboxError
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service

_PR_SET_CHILD_SUBREAPER = 36
WRITE = """
import os
os.mkdir("private", 0o700)
for name in ("plain.csv", "private/inner.csv"):
    with open(name, "w") as file:
        file.write("a,b")
os.chmod("plain.csv", 0o600)
with open("/dev/stderr", "w") as stderr:
    stderr.write("opened again")
"""


def below(word: str) -> Mapping[int, int]:
    """The descendants of this process whose command contains a word, with their uids."""
    pids, found = [os.getpid()], {}
    for pid in pids:
        place = Path(f"/proc/{pid}")
        with suppress(FileNotFoundError, ProcessLookupError):
            pids += map(int, (place / f"task/{pid}/children").read_text().split())
            if pid != os.getpid() and word in (place / "cmdline").read_text():
                (line,) = [line for line in (place / "status").read_text().splitlines() if line.startswith("Uid:")]
                found[pid] = int(line.split()[1])
    return found


def sandboxes() -> list[int]:
    """The uids of all processes in sandboxes."""
    return sorted({*below("/opt/").values()})


def reap() -> None:
    """Waits for processes whose parent was killed: this program is then their parent."""
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


async def use(service: Service) -> dict[str, Any]:
    """Uses sandboxes in several ways, and kills the launcher, which is their parent."""
    probed = {check.name: [check.state, check.detail, check.fix] for check in await service.backend.probe()}
    one, other = [await execute(service, "x = 1") for _ in range(2)]
    (launcher, parent), *_ = below("launcher").items()  # the others are copies of it, which end with it
    uids = sandboxes()
    written = await execute(service, WRITE, session_id=one.session_id)
    os.kill(launcher, signal.SIGKILL)
    after: list[str] = []
    while "ok" not in after:
        try:
            after.append((await execute(service, "x = 2", session_id=other.session_id)).status)
        except SandboxError as error:
            after.append(str(error))
    return {
        "uids": probed["user of the machine"],
        "launcher": parent,
        "sandboxes": uids,
        "written": [written.status, written.stderr.text, sorted(artifact.name for artifact in written.artifacts)],
        "after": after,
        "sandboxes after": sandboxes(),
    }


async def main() -> None:
    with anyio.fail_after(60):
        async with open_service(load_profile(sys.argv[1])) as service:
            found = await use(service)
    print(json.dumps(found))


if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
    raise SystemExit("this process cannot become a subreaper")
anyio.run(main)
signal.alarm(60)
reap()
