"""Lines of a cell that call pip. In a sandbox pip has no network, so the libraries are installed from outside."""

import io
import re
import shlex
import tokenize
from collections.abc import Sequence

from .exceptions import ValidationError

_PIP = re.compile(r"(?P<indent>[ \t]*)[%!][ \t]*(?:python3?[ \t]+-m[ \t]+)?pip3?[ \t]+install[ \t]+(?P<line>.+)")
_COMMAND = re.compile(r"""(?:[^;&|'"\\]|'[^']*'|"(?:[^"\\]|\\.)*"|\\.)*""")
"""A command, up to the character at which a shell begins the next one."""
_QUIET = frozenset(("-q", "--quiet", "-U", "--upgrade"))
_PYTHON = frozenset(("%%capture", "%%prun", "%%time", "%%timeit"))
"""Cell magics whose body is Python."""


def without_pip(code: str) -> tuple[str, list[str]]:
    """A cell without its calls of pip, and the libraries of these calls; a line that begins in a string is not one.

    Raises `ValidationError` for a line that is not valid shell syntax.
    """
    lines = code.split("\n")
    first = code.split(maxsplit=1)[:1]
    found = [(number, match) for number, line in enumerate(lines) if (match := _PIP.fullmatch(line))]
    if not found or (first and first[0].startswith("%%") and first[0] not in _PYTHON):
        return code, []
    inside = _inside_strings(lines)
    libraries: list[str] = []
    for number, match in found:
        if number not in inside:
            words, rest = _words(match["line"])
            libraries += [word for word in words if word not in _QUIET]
            # The rest of the line is run by the shell, as after a successful installation.
            left = f"!: {rest}" if rest else "pass" if match["indent"] else ""
            lines[number] = f"{match['indent']}{left}"
    return "\n".join(lines), libraries


def _words(line: str) -> tuple[list[str], str]:
    """The words of a shell's first command in a line, and the rest of it."""
    match = _COMMAND.match(line)
    command = match[0] if match else ""
    rest = line[len(command) :]
    if rest and rest[0] not in ";&|":
        raise ValidationError(f"{line!r} cannot be read as a command", "give names of libraries, separated by spaces")
    return shlex.split(command, comments=True), rest


def _inside_strings(lines: Sequence[str]) -> set[int]:
    """The numbers of the lines, from 0, that begin inside a string."""
    # Magics are not Python, and would end the search.
    python = "".join(f"{'' if _PIP.match(line) else line}\n" for line in lines)
    inside: set[int] = set()
    starts: list[int] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(python).readline):
            name = tokenize.tok_name[token.type]
            if name == "STRING":
                inside.update(range(token.start[0], token.end[0]))
            elif name.endswith("STRING_START"):  # since Python 3.12, f-strings are several tokens
                starts.append(token.start[0])
            elif name.endswith("STRING_END"):
                inside.update(range(starts.pop(), token.end[0]))
    except (tokenize.TokenError, SyntaxError):  # the rest is not Python
        pass
    return inside
