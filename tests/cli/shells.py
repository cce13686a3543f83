"""Shells that complete a line, as they do when a person presses Tab. In their folder, `script` is what they read before."""

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from .command import LIMIT
from .terminals import in_a_terminal, shown

_BASH = """
eval "$(cat script)"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
completer=$(complete -p llm-sandbox-mcp | sed 's/.* -F \\([^ ]*\\) .*/\\1/')
"$completer"
printf '%s\\n' "${COMPREPLY[@]}"
"""
_ZSH = b"""\
autoload -Uz compinit; compinit -D -u; eval "$(cat script)"; llm-sandbox-mcp() { print -r -- "<$@[-1]>" }; print rea''dy
"""


def _bash(folder: Path, line: str) -> list[str]:
    return _lines(folder, "bash", "--norc", "-c", _BASH, "bash", *line.split(" "))


def _fish(folder: Path, line: str) -> list[str]:
    found = _lines(folder, "fish", "--no-config", "-c", "source script; complete -C $argv", line)
    return [candidate.partition("\t")[0] for candidate in found]


def _zsh(folder: Path, line: str) -> list[str]:
    """zsh completes only in its line editor, so this presses Tab and Enter there; the command shows its last word."""
    with in_a_terminal(["zsh", "-f", "-i"], cwd=folder) as (keyboard, _):
        os.write(keyboard, _ZSH)
        shown(keyboard, rb"ready\r\n")
        os.write(keyboard, line.encode() + b"\t\n")
        return [shown(keyboard, rb"<([^<>]*)>\r\n")[1].decode()]


def _lines(folder: Path, *argv: str) -> list[str]:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, cwd=folder, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


COMPLETING: Mapping[str, Callable[[Path, str], list[str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
"""What each shell can put in place of the last word of a line."""
