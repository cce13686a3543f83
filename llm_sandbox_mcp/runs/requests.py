"""Checks what callers send before anything starts, and makes sure that it is valid Unicode."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..base.errors import InvalidArgument, quoted
from ..base.messages import Note, Step
from ..base.results import OnOutput
from ..base.text import REPLACEMENT, valid
from ..base.units import format_size
from ..languages.languages import Language, Languages

_VARIABLES_MAX = 1 << 20
"""Bytes of all variables of one run as JSON."""
_STDIN_MAX = 1 << 20
"""Bytes of the standard input of one run."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The request for one run, as the interpreter of its language gets it."""

    code: str
    timeout: float
    """Seconds for the whole run."""
    output: int
    """Bytes that the code may print on both streams together; if it prints more, it is stopped."""
    grace: float
    """Seconds that the code has to answer an interrupt."""
    variables: str = "{}"
    """Set before the code runs, in languages that take variables: an object of JSON. Its values can take twenty times
    as much memory, and runs wait with them."""
    stdin: str = ""
    """What the code reads from its standard input."""
    on_output: OnOutput | None = None
    """Called with the output as it appears."""
    instead: str | None = None
    """What to run if the code cannot be compiled, in languages that have `notebook_lines`."""
    inspect: bool = False
    """Whether the report contains the values of the names that the code bound."""
    last: bool = False
    """Whether the run includes what an interpreter does when it exits; nothing can run in it afterwards. Languages
    without `exits` ignore it."""
    preload: str = ""
    """The module to import instead of running code, in languages that have `preloads`."""


def notes_on_text(**texts: str) -> list[Note]:
    """A note with the names of those texts that contain U+FFFD, if any do: what it stands for is lost."""
    names = [name for name, text in texts.items() if REPLACEMENT in text]
    if not names:
        return []
    cause = f"U+FFFD in {' and '.join(names)} stands for characters that were not valid Unicode"
    return [Note("replaced_characters", cause, "if they matter, send them whole, in UTF-8", names=names)]


def checked_code(code: str, limit: int) -> str:
    """The code as valid Unicode, without the byte order mark with which some editors begin a file."""
    size = len(code.encode(errors="surrogatepass"))
    if not code.strip():
        raise InvalidArgument("code is empty", "give the source to run")
    if size > limit:
        raise InvalidArgument(
            f"code has {size} bytes; the limit is {limit} ({format_size(limit)})",
            Step.DATA_AS_FILE,
            size=size,
            limit=limit,
        )
    return valid(code).removeprefix("\ufeff")


def without_fence(code: str, language: Language, languages: Languages) -> str:
    """The code inside of a fence, as in Markdown, if all of it is one such block; other code as it is.

    Raises `InvalidArgument` if the fence names another language.
    """
    text = code.strip("\ufeff \t\r\n")
    fence = text[: len(text) - len(text.lstrip(text[:1]))]
    if fence[:3] not in ("```", "~~~"):
        return code
    first, _, rest = text.partition("\n")
    body, end, last = rest.rpartition("\n")
    last = last.strip()
    info = first.removeprefix(fence)
    if len(last) < len(fence) or last.strip(fence[0]) or "`" in info:
        return code
    name, _, options = info.strip(" \t\r{}.").partition(" ")
    if options and "=" not in options:  # code, on the line of the fence
        return code
    name = name.lower()
    named = languages.get(name, language)
    if named is not language:
        step = f"give it as {named.name} code, or without the fence if it is {language.name}"
        raise InvalidArgument(f"the fence around code says {named.name}, and language is {language.name}", step)
    return body + end


def checked_stdin(stdin: str, language: Language) -> str:
    """The text for standard input as valid Unicode."""
    if not stdin:
        return ""
    runner = language.handler.runner
    if runner is not None and not runner.input:
        raise InvalidArgument(f"stdin cannot be given to {language.name}", Step.DATA_AS_FILE)
    text = valid(stdin)
    if "\0" in text:
        raise InvalidArgument("stdin contains a NUL character", Step.DATA_AS_FILE)
    size = len(text.encode())
    if size > _STDIN_MAX:
        raise InvalidArgument(
            f"stdin has {size} bytes; the limit is {_STDIN_MAX} ({format_size(_STDIN_MAX)})",
            Step.DATA_AS_FILE,
            size=size,
            limit=_STDIN_MAX,
        )
    return text


def without_notebook_lines(code: str, language: Language) -> str | None:
    """The code with empty lines for those that only set up a notebook; None if it has no such lines."""
    runner = language.handler.runner
    if runner is None or not runner.notebook_lines:
        return None
    rest, count = re.subn(runner.notebook_lines, "", code, flags=re.MULTILINE)
    return rest if count else None


def checked_variables(variables: Mapping[str, object], language: Language) -> str:
    """The variables as JSON: plain names, valid Unicode."""
    if not variables:
        return "{}"
    if language.handler.build is not None:
        raise InvalidArgument(
            f"variables cannot be given to {language.name}", "write the values into the code or a file"
        )
    for name in variables:
        if not name.isidentifier() or not name.isascii() or name.startswith("__"):
            raise InvalidArgument(
                f"variables: {quoted(name)} is not a plain identifier", "use ASCII letters, digits and underscores"
            )
    try:
        text = valid(json.dumps(dict(variables), ensure_ascii=False, allow_nan=False, separators=(",", ":")))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"variables must be JSON values: {error}", "send null or a string instead") from error
    if (size := len(text.encode())) > _VARIABLES_MAX:
        raise InvalidArgument(
            f"variables have {size} bytes; the limit is {_VARIABLES_MAX} ({format_size(_VARIABLES_MAX)})",
            Step.DATA_AS_FILE,
            size=size,
            limit=_VARIABLES_MAX,
        )
    return text
