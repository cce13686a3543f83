"""A program that is killed while it saves a session: the name opens to the old or to the new state, never to another."""

import random
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp import Sandboxes
from tests.effort import tries
from tests.engines import host_folder, need

from .command import LIMIT, environment

pytestmark = pytest.mark.anyio

PROGRAM = """
import sys
import anyio
from llm_sandbox_mcp import Sandboxes

async def main():
    async with Sandboxes(sys.argv[1]) as sandboxes, sandboxes.session() as session:
        await session.run("import os")
        n = 0
        while True:
            n += 1
            code = f"n = {n}; open('n', 'w').write(str(n)); open('large', 'wb').write(n.to_bytes(8, 'big') * 200_000)"
            await session.run(code)
            print(n, flush=True)
            await session.save("geo")

anyio.run(main)
"""
WHOLE = "n == int(open('n').read()) and open('large', 'rb').read() == n.to_bytes(8, 'big') * 200_000"


async def test_the_name_opens_to_the_old_or_the_new_state() -> None:
    await need("embedded")
    with host_folder() as folder:
        profile = folder / "own.toml"
        profile.write_text(
            f'[server]\nruntime = "{folder}/runtime"\n[sessions]\nstore = "{folder}/saved"\n[pool]\nmin = 0\n'
        )
        for _ in range(tries(2)):
            last = await anyio.to_thread.run_sync(killed_at, profile, random.uniform(0, 0.1))
            async with Sandboxes(profile) as sandboxes, sandboxes.open("geo") as again:
                assert (await again.run(WHOLE)).result == "True"
                assert int((await again.run("n")).result or 0) in (last - 1, last)
            left = [path.suffix for path in (folder / "saved").rglob("*") if path.is_file()]
            assert set(left) <= {".state", ".part"}
            assert left.count(".state") == 1


def killed_at(profile: Path, seconds: float) -> int:
    """Runs the program, and kills it so many seconds after it has begun a save; returns the number that it saves."""
    command = [sys.executable, "-c", PROGRAM, str(profile)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) == 3:
                break
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
        rest = process.stdout.read().split()
        process.wait(LIMIT)
    return int(rest[-1]) if rest else 3
