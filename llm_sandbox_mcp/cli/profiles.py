"""`llm-sandbox-mcp profile show` and `profile check`."""

import argparse
import sys
from collections.abc import Mapping

import anyio

from ..base.text import one_line, without_credentials
from ..languages.languages import load_languages
from ..libraries.installed.ruling import library_rules
from ..profile.profile import Profile
from .console import say
from .opening import read_profile
from .profile_checks import profile_mistakes
from .toml import as_toml

_MISTAKES = 2


def main(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Shows the profile in force, or checks one; a mistake is an error with file, key and reason."""
    profile = read_profile(options, environ)
    if options.action == "check":
        return _check(options.profile, profile, environ)
    languages = load_languages(profile.handlers.folders)
    profile.check_languages(languages.prepared, languages.preloading)
    library_rules(profile, languages)
    sys.stdout.write(as_toml(profile))
    return 0


def _check(named: str, profile: Profile, environ: Mapping[str, str]) -> int:
    mistakes = anyio.run(profile_mistakes, profile, environ)
    for mistake in mistakes:
        sys.stderr.write(f"llm-sandbox-mcp: {one_line(without_credentials(str(mistake)))}\n")
    if mistakes:
        return _MISTAKES
    languages = load_languages(profile.handlers.folders)
    say(f"{named}: valid; {len(languages)} languages: {', '.join(languages)}")
    if profile.unread:
        tables = ", ".join(f"[{table}]" for table in profile.unread)
        say(f"{named}: {tables} was not checked, because backend.name is {profile.backend.name}")
    return 0
