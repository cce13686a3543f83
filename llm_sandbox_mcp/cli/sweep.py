"""`llm-sandbox-mcp sweep`."""

import argparse
from collections.abc import Mapping

from .console import say
from .opening import opened, read_profile, run_until_signal


def main(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Removes what ended servers left behind; running servers are not affected."""
    profile = read_profile(options, environ)

    async def sweep() -> int:
        async with opened(profile, environ) as service:
            count = await service.backend.sweep()
        say(f"removed leftovers of ended servers: {count}" if count else "nothing to remove")
        return 0

    return run_until_signal(sweep)
