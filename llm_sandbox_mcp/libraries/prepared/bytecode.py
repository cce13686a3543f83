"""The bytecode of a prepared environment: sandboxes can write none, and without it libraries load four times as slowly.

It takes longer than everything else, so it is compiled once the environment can be used already: each file appears
whole, whatever the sandboxes that see it do meanwhile, and whoever stops in the middle is continued by the next server.
"""

import logging
import os
from contextlib import suppress
from pathlib import Path

import anyio

from ...base.errors import StartFailed
from .environments import locked, run_with_lock, silent
from .keeping import lock_of, make_private

_DONE = ".compiled"
"""A file in each environment whose bytecode is complete."""
_MOST = 4
"""Processes that compile at the same time."""
# One of several processes that share the files; each is our own child, so that none is left when they are killed.
# Nobody imports the tests of libraries, which are two fifths of the code. What cannot be compiled is left out.
_COMPILE = """
import importlib.util, os, py_compile, sys, zlib
os.nice(5)
top, own, processes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for folder, below, names in os.walk(top):
    below[:] = [name for name in below if name not in ("tests", "__pycache__")]
    for path in [os.path.join(folder, name) for name in names if name.endswith(".py")]:
        ours = zlib.crc32(os.fsencode(path)) % processes == own
        if ours and not os.path.exists(importlib.util.cache_from_source(path)):
            # Says nothing of a mistake in the file, but fails if the disk is full.
            py_compile.compile(path, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
"""

_log = logging.getLogger(__name__)


async def compile_bytecode(target: Path) -> None:
    """Compiles what has no bytecode yet, unless this user cannot write there; it runs none of the code."""
    done = anyio.Path(target / _DONE)
    if await done.exists() or not os.access(target, os.W_OK):
        return
    with suppress(OSError):
        make_private(target)
        async with locked(lock_of(target), silent) as lock:
            if not await done.exists() and await _compile(target, lock):
                await done.touch()


async def _compile(target: Path, lock: int) -> bool:
    """Whether all is compiled."""
    failures: list[Exception] = []
    processes = min(_MOST, os.cpu_count() or 1)

    async def compile_share(own: int) -> None:
        shared = [str(target / "lib"), str(own), str(processes)]
        try:
            await run_with_lock([str(target / "bin" / "python"), "-I", "-S", "-c", _COMPILE, *shared], lock, silent)
        except (StartFailed, OSError) as failure:
            failures.append(failure)

    async with anyio.create_task_group() as tasks:
        for own in range(processes):
            tasks.start_soon(compile_share, own)
    if failures:
        _log.warning("the libraries in %s load slowly, without their bytecode: %s", target, failures[0])
    return not failures
