"""`llm-sandbox-mcp client-config`."""

import argparse
import difflib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from ...backends import BACKENDS, candidates
from ...base.errors import InvalidArgument
from ...base.text import one_line
from ...profile.profile import load_profile
from ..console import say
from ..opening import named_folders, named_profile
from .ahead import offer
from .entries import with_entry
from .hosts import host
from .replacing import replace
from .starting import starting_command

_VARIABLES = (
    "many hosts pass on none of their variables; add those of the store, such as AWS_ACCESS_KEY_ID, to the entry"
)


def main(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Prints the entry on stdout, so that it can be piped, and on stderr where to put it; or writes it there."""
    if options.file and not options.write:
        raise InvalidArgument("--file names the file that --write writes", "add --write")
    chosen = host(options.client)
    profile = named_profile(options, environ)
    decided = load_profile(profile)
    engines = candidates(decided.backend.name)
    extras = [name for name in engines if name in BACKENDS and name != "embedded"]
    in_objects = decided.sessions.in_objects
    start = starting_command([*extras, *["object-store"] * in_objects])
    command, *arguments = start
    if profile:
        arguments += ["--profile", str(Path(profile).absolute()) if Path(profile).is_file() else profile]
    for folder in named_folders(options):
        arguments += ["--folder", folder]
    table, name, entry = chosen.filled(command, arguments)
    path = Path(options.file) if options.file else chosen.path(environ)
    if options.write:
        said = _write(path.resolve(), lambda text: with_entry(text, chosen.format, table, name, entry))
    else:
        said = f"{chosen.title}: put this into {path} ({chosen.where}), or let --write do it"
        sys.stdout.write(with_entry("", chosen.format, table, name, entry))
        sys.stdout.flush()
    sys.stderr.write(f"{one_line(said)}; then {chosen.then}\n")
    if in_objects:
        sys.stderr.write(f"{decided.sessions.store}: {_VARIABLES}\n")
    # The images of an engine have their libraries.
    return offer(options, environ, decided, start) if options.write and "embedded" in engines else 0


def _write(path: Path, edit: Callable[[str], str]) -> str:
    """Edits a file and prints the difference; returns what was done. Raises `InvalidArgument` if it cannot be done."""
    try:
        older = path.read_bytes() if path.exists() else None
        text = (older or b"").decode()
        edited = edit(text)
        if edited == text:
            return f"{path} already has this entry"
        copy = replace(path, edited.encode(), older)
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be written: {error.strerror}", "name another file with --file") from error
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(
            f"{path} was not changed, as it cannot be edited: {error}",
            "fix it, or paste what is printed without --write",
        ) from error
    for line in difflib.unified_diff(text.splitlines(), edited.splitlines(), str(path), str(path), lineterm=""):
        say(line)
    return f"{path} has the entry" + (f"; what was in it before is in {copy}" if copy else "")
