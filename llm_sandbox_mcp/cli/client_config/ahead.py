"""Offers to prepare libraries now, so that the first start of the host does not have to."""

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

import anyio

from ...base.errors import StartFailed
from ...languages.languages import load_languages
from ...libraries.prepared.environments import find
from ...profile.profile import Profile
from .. import prepare
from ..opening import folders_of, named_profile


def offer(options: argparse.Namespace, environ: Mapping[str, str], profile: Profile, command: Sequence[str]) -> int:
    """Asks a person in a terminal, and prepares them; else names the command. Nothing is said if all are there.

    Returns the exit status.
    """
    names = anyio.run(_missing, profile, environ)
    if not names:
        return 0
    again = ["--profile", named] if (named := named_profile(options, environ)) else []
    what = f"the libraries of {', '.join(names)} are prepared at the first start, which takes about a minute"
    if sys.stdin.isatty() and sys.stderr.isatty():
        _say(f"{what}; prepare them now? [Y/n] ", end="")
        if sys.stdin.readline().strip().lower() in ("", "y", "yes"):
            return prepare.main(argparse.Namespace(language=names, profile=options.profile), environ)
    _say(f"{what}; to do that now: {shlex.join([*command, 'prepare', *names, *again])}")
    return 0


async def _missing(profile: Profile, environ: Mapping[str, str]) -> list[str]:
    """The languages whose libraries can be prepared, and are not yet."""
    languages, cache = load_languages(profile.handlers.folders), folders_of(profile, environ).cache
    missing = []
    for name, prepared in languages.prepared.items():
        libraries = profile.language(name).libraries
        if prepared and libraries:
            with suppress(StartFailed):  # it has no interpreter here
                if not await find(languages[name], libraries, cache):
                    missing.append(name)
    return missing


def _say(text: str, end: str = "\n") -> None:
    sys.stderr.write(text + end)
    sys.stderr.flush()
