"""`llm-sandbox-mcp prepare`."""

import argparse
import sys
import time
from collections.abc import Mapping

from ..base.errors import StartFailed
from ..base.text import escape, one_line
from ..service import Service
from .console import table
from .opening import opened, read_profile, run_until_signal

_INCOMPLETE = 1
_READY = "ready"


def main(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Prepares languages ahead; 0 when each has all of its libraries and its image, else 1."""
    profile = read_profile(options, environ)

    async def work() -> int:
        async with opened(profile, environ) as service:
            names = [service.languages[name].name for name in options.language] or [*service.languages]
            rows = [await _prepare(service, name) for name in names]
        sys.stdout.write(f"{table(('language', 'state', 'took'), rows)}\n")
        return 0 if all(state == _READY for _, state, _ in rows) else _INCOMPLETE

    return run_until_signal(work)


async def _prepare(service: Service, name: str) -> tuple[str, str, str]:
    async def report(line: str) -> None:
        sys.stderr.write(f"{escape(f'{name}: {line}')}\n")
        sys.stderr.flush()

    start = time.monotonic()
    try:
        reason = await service.prepare(name, report)
        state = "without its libraries" if reason else _READY
    except StartFailed as error:
        state, reason = "missing", str(error)
    if reason:
        await report(one_line(reason))
    return name, state, f"{time.monotonic() - start:.1f} s"
