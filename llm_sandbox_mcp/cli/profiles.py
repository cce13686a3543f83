"""`llm-sandbox-mcp profile show` and `profile check`."""

import argparse
import sys
from collections.abc import Mapping

import anyio

from ..errors import ProfileError
from ..languages import Languages, load_languages
from ..libraries.ruling import library_rules
from ..profile import Profile
from ..rules.checking import open_checker
from ..rules.presets import rules_of
from .console import say
from .opening import read_profile
from .toml import as_toml


def main(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Shows the profile in force, or checks that one is valid; a mistake is an error with file, key and reason."""
    profile = read_profile(options, environ)
    languages = load_languages(profile.handlers.folders)
    profile.check_languages(languages.prepared)
    library_rules(profile, languages)
    if options.action == "show":
        sys.stdout.write(as_toml(profile))
    else:
        anyio.run(_check_rules, profile, languages)
        say(f"{options.profile}: valid; {len(languages)} languages: {', '.join(languages)}")
        if profile.unread:
            tables = ", ".join(f"[{table}]" for table in profile.unread)
            say(f"{options.profile}: {tables} was not checked, because backend.name is {profile.backend.name}")
    return 0


async def _check_rules(profile: Profile, languages: Languages) -> None:
    """Raises `ProfileError` for a language whose code the rules cannot judge on any machine."""
    async with open_checker(rules_of(profile.rules), profile.rules, languages) as checker:
        for name, why in (await checker.unready()).items():
            if why.file is not None:
                raise ProfileError(f"{why.file}: rules apply to {name}, {why.cause}; {why.step}")
