"""`llm-sandbox-mcp sweep`."""

import argparse
from collections.abc import Mapping

from .console import say
from .opening import opened, read_profile, run_until_signal


def main(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Removes what servers that are gone left behind; those that live are left alone."""
    profile = read_profile(options, environ)

    async def sweep() -> int:
        async with opened(profile, environ) as service:
            count = await service.backend.sweep()
        say(f"removed {count} left by servers that are gone" if count else "nothing to remove")
        return 0

    return run_until_signal(sweep)
