"""`llm-sandbox-mcp cache`."""

import argparse
from collections.abc import Mapping, Sequence

import anyio

from ..base.principal import USER
from ..base.units import format_size
from ..libraries.prepared.cache import Kept, clear, contents
from ..state.opening import kept_sessions, saved_sessions
from .console import say, table
from .opening import folders_of, read_profile


def main(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Prints what is kept for later installations, with sizes and limits; or removes what no running server uses."""
    profile = read_profile(options, environ)
    folders = folders_of(profile, environ)
    folder = folders.cache
    kept = contents(folder)
    if not options.clear:
        rows = [(each.folder.name, str(each.number), format_size(each.size()), _bound(each)) for each in kept]
        say(table((str(folder), "number", "size", "at most"), rows))
        say(f"saved sessions: {anyio.run(saved_sessions(profile, folders.sessions).use, USER)}")
        say(f"sessions put aside: {anyio.run(kept_sessions(profile, folders.sessions).use, USER)}")
        return 0
    before = _size(kept)
    clear(folder)
    after = _size(kept)
    rest = f"; running servers still use {format_size(after)}" if after else ""
    say(f"removed {format_size(before - after)} from {folder}{rest}")
    return 0


def used_of(kept: Kept) -> str:
    """How much is used, and the limit."""
    used = str(kept.number) if kept.most else format_size(kept.size())
    return f"{used} of {_bound(kept)}"


def _size(kept: Sequence[Kept]) -> int:
    return sum(each.size() for each in kept)


def _bound(kept: Kept) -> str:
    return str(kept.most) if kept.most else format_size(kept.most_bytes)
