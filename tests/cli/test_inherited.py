"""The server runs code, interrupts it and cleans up after it, whatever it inherits from the process that starts it."""

import sys
from functools import partial
from pathlib import Path

import pytest

from tests.engines import host_folder
from tests.leftovers import look, nothing_beyond
from tests.mcp.results import answer

from .command import ARGV
from .entry import started

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("embedded")]

INHERITED = {
    "a umask that excludes other users": "os.umask(0o077)",
    # `nohup` and `&` ignore some signals.
    "signals that are ignored": "for n in {1, 2, 3, 13, 15, 17}: signal.signal(n, signal.SIG_IGN)",
    "signals that are blocked": "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
}
PROFILE = """
[server]
runtime = "{folder}/made/runtime"
cache = "{folder}/made/cache"
[pool]
min = 0
[languages.python]
libraries = []
"""
GONE = 20.0


@pytest.mark.parametrize("begin", INHERITED.values(), ids=INHERITED)
async def test_sandboxes_do_not_inherit_settings_of_the_server(begin: str, tmp_path: Path) -> None:
    argv = (sys.executable, "-c", f"import os, signal, sys\n{begin}\nos.execv(sys.argv[1], sys.argv[1:])", *ARGV)
    profile = tmp_path / "profile.toml"
    with host_folder() as folder:
        profile.write_text(PROFILE.format(folder=folder))
        async with started({}, "--profile", str(profile), argv=argv) as server:
            run = await answer(server.client, "execute_code", code="print(6 * 7)", language="python")
            assert run["stdout"] == "42\n"
            state = partial(look, folder / "made" / "runtime")
            before = state()
            endless = "kept=1; while true; do sleep 1000; done"
            run = await answer(server.client, "execute_code", code=endless, language="bash", timeout_seconds=0.5)
            assert (run["status"], run["session_state"]) == ("timeout", "kept")
            session = run["session_id"]
            run = await answer(server.client, "execute_code", code="echo $kept", language="bash", session_id=session)
            assert run["stdout"] == "1\n"
            await answer(server.client, "manage_session", action="close", session_id=session)
            await nothing_beyond(before, state, GONE)
