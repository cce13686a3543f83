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
# Nobody imports the tests of libraries, which are two fifths of the code. What cannot be compiled is left out.
_COMPILE = """
import compileall, os, py_compile, re, sys
os.nice(5)
compileall.compile_dir(sys.argv[1], quiet=2, rx=re.compile("/tests/"), workers=min(4, os.cpu_count() or 1),
                       invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
"""

_log = logging.getLogger(__name__)


async def compile_bytecode(target: Path) -> None:
    """Compiles what has no bytecode yet, unless this user cannot write there; it runs none of the code."""
    done = anyio.Path(target / _DONE)
    if await done.exists() or not os.access(target, os.W_OK):
        return
    command = [str(target / "bin" / "python"), "-I", "-S", "-c", _COMPILE, str(target / "lib")]
    with suppress(OSError):
        make_private(target)
        async with locked(lock_of(target), silent) as lock:
            if not await done.exists():
                try:
                    await run_with_lock(command, lock, silent)
                    await done.touch()
                except StartFailed as failure:
                    _log.warning("the libraries in %s load slowly, without their bytecode: %s", target, failure)
