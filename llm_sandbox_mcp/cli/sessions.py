"""`llm-sandbox-mcp sessions`."""

import argparse
from collections.abc import Mapping

from ..base.principal import USER
from ..base.results import SavedSession
from ..base.units import format_age, format_size
from ..state.opening import kept_sessions, saved_sessions
from .console import say, table
from .opening import folders_of, read_profile, run_until_signal


def main(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Prints the saved sessions of this user, or deletes some of them."""
    profile = read_profile(options, environ)
    folder = folders_of(profile, environ).sessions
    saved, kept = saved_sessions(profile, folder), kept_sessions(profile, folder)

    async def work() -> int:
        for name in options.delete:
            await saved.delete(USER, name)
            say(f"deleted {name}")
        if not options.delete:
            rows = [_row(one.described()) for one in await saved.all(USER)]
            say(table((saved.place, "age", "size", "variables", "files", "missing"), rows))
            if profile.sessions.keep:
                say(f"put aside by servers, and opened again by id: {await kept.use(USER)}")
        return 0

    return run_until_signal(work)


def _row(saved: SavedSession) -> tuple[str, ...]:
    if saved.problem:
        return saved.name, "", format_size(saved.size), f"cannot be opened: {saved.problem}", "", ""
    variables = ", ".join(f"{language} {number}" for language, number in saved.variables.items())
    return (
        saved.name,
        format_age(saved.age),
        format_size(saved.size),
        variables,
        str(saved.files),
        str(len(saved.missing)),
    )
