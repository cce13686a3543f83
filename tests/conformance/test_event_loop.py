"""The event loop never waits for a disk, a lock or a process, whatever code does."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import blockbuster
import pytest

import llm_sandbox_mcp
import llm_sandbox_mcp.testing
from llm_sandbox_mcp.host.folders import CONFIGS
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.toml.model import read_toml

pytestmark = pytest.mark.anyio

CROWD = """
import os
for number in range(12_000):
    open(f"f{number}", "w").close()
os.makedirs("/".join("d" * 40))
"""
FLOOD = "import sys\nwhile True:\n    sys.stdout.write('x' * 100_000)"
PROGRAM = '#include <fstream>\nint main() { std::ofstream("made.txt") << "made"; }'
FIGURE = "open('out.svg', 'w').write('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')"

LOOKS = {
    "embedded/backend.py": ("_command", "_zygote_command"),
    "embedded/sandbox.py": ("lacking",),
    # A folder with so few entries that a thread would take longer, and the table of file types, which is read once.
    "backends/scanning.py": ("_walk",),
    "mimetypes.py": ("init",),
}
"""Checks of single paths, which take microseconds; code cannot choose these paths, except for those in memory."""


@contextmanager
def watched() -> Iterator[None]:
    """Makes a blocking call on the event loop raise `BlockingError`, if the package or a function that it calls makes
    it."""
    guard = blockbuster.BlockBuster(llm_sandbox_mcp, excluded_modules=[llm_sandbox_mcp.testing])
    for name in ("os.stat", "os.access", "os.readlink", "os.path.islink", "os.scandir"):
        for file, functions in LOOKS.items():
            guard.functions[name].can_block_in(file, functions)
    guard.activate()
    try:
        yield
    finally:
        guard.deactivate()


async def test_reading_a_file_on_the_event_loop_is_detected() -> None:
    with watched(), pytest.raises(blockbuster.BlockingError):
        read_toml(CONFIGS / "default.toml")


async def test_nothing_blocks_the_event_loop_while_code_does_what_it_likes(service: Service) -> None:
    run = partial(execute, service)
    name = (await run("x = 1")).session_id
    with watched():
        assert (await run(CROWD, session_id=name)).status == "ok"
        assert (await run(FIGURE, session_id=name)).artifacts
        assert (await run(FLOOD, session_id=name)).status == "output_limit"
        assert (await run("import os\nos._exit(1)", session_id=name)).status == "error"
        await service.files.copy_in(name, "given.bin", os.urandom(1 << 20))
        await service.files.copy_out(name, "given.bin")
        assert len(await service.files.pack(name, ".")) > 1 << 20
        assert (await run(PROGRAM, language="cpp")).artifacts
        assert (await run("while True: pass", session_id=name, timeout=0.2)).status == "timeout"
        await service.describe_language("python")
        await service.sessions.reset(name)
        await service.sessions.close(name)
