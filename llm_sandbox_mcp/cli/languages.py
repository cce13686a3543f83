"""`llm-sandbox-mcp languages`."""

import argparse
import sys
from collections.abc import Mapping

from ..base.messages import listed
from ..languages.languages import load_languages
from .console import table
from .opening import read_profile

_LIBRARIES_SHOWN = 6


def main(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Prints the languages that the profile offers."""
    profile = read_profile(options, environ)
    rows = []
    for name, language in load_languages(profile.handlers.folders).items():
        handler = language.handler
        rows.append(
            (
                name,
                ", ".join(handler.aliases) or "-",
                handler.extension,
                "kept" if handler.stateful else "-",
                listed(profile.language(name).libraries, _LIBRARIES_SHOWN) or "-",
                handler.libraries.manager if handler.libraries else "-",
            )
        )
    head = ("language", "aliases", "file", "state", "prepared libraries", "package manager")
    sys.stdout.write(f"{table(head, rows)}\n")
    return 0
