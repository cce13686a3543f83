"""`llm-sandbox-mcp profile show` and `profile check`."""

import argparse
import sys
from collections.abc import Mapping

from ..languages import load_languages
from .console import say
from .opening import read_profile
from .toml import as_toml


def main(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Shows the profile in force, or says that one is right; a mistake comes as an error with file, key and reason."""
    profile = read_profile(options, environ)
    languages = load_languages(profile.handlers.folders)
    profile.check_languages(languages)
    if options.action == "show":
        sys.stdout.write(as_toml(profile))
    else:
        say(f"{options.profile}: right; {len(languages)} languages: {', '.join(languages)}")
    return 0
