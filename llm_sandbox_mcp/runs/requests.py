"""What callers send, checked before anything starts, and made such that it can be sent on."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import InvalidArgument, quoted
from ..languages import Language
from ..messages import Note, Step
from ..results import OnOutput
from ..units import format_size

_VARIABLES_MAX = 1 << 20
"""Bytes of all variables of one run as JSON."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One run, as the interpreter of its language is asked for it."""

    code: str
    timeout: float
    """Seconds for all of it."""
    output: int
    """Bytes that it may print on both streams together; at more it is stopped."""
    grace: float
    """Seconds for it to answer an interrupt."""
    variables: Mapping[str, object] = field(default_factory=dict)
    """Bound before it begins, in languages that take some."""
    on_output: OnOutput | None = None
    """Called with what is printed, as it comes."""
    tell: bool = False
    """Whether the report says what the names stand for that it bound."""
    last: bool = False
    """Whether it has all that an interpreter does at its end, after which nothing can be run."""


def checked_code(code: str, limit: int) -> tuple[str, list[Note]]:
    """Code as it can be sent, with a note where characters had to be replaced."""
    size = len(code.encode(errors="surrogatepass"))
    if not code.strip():
        raise InvalidArgument("code is empty; give the source to run")
    if size > limit:
        raise InvalidArgument(
            f"code has {size} bytes; the limit is {limit} ({format_size(limit)})",
            Step.DATA_AS_FILE,
            size=size,
            limit=limit,
        )
    try:
        code.encode()
        return code, []
    except UnicodeEncodeError:
        note = Note("code_replaced", "characters of the code that are not valid Unicode were replaced by '?'")
        return code.encode(errors="replace").decode(), [note]


def checked_variables(variables: Mapping[str, object], language: Language) -> Mapping[str, object]:
    """Variables as they can be sent: plain names, JSON values, valid Unicode."""
    if not variables:
        return {}
    if language.handler.build is not None:
        raise InvalidArgument(f"variables cannot be given to {language.name}; write the values into the code or a file")
    for name in variables:
        if not name.isidentifier() or not name.isascii() or name.startswith("__"):
            raise InvalidArgument(
                f"variables: {quoted(name)} is not a plain identifier; use ASCII letters, digits and underscores"
            )
    try:
        text = json.dumps(dict(variables), ensure_ascii=False, allow_nan=False).encode(errors="replace")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"variables must be JSON values: {error}; send null or text for it") from error
    if len(text) > _VARIABLES_MAX:
        raise InvalidArgument(
            f"variables have {len(text)} bytes; the limit is {_VARIABLES_MAX} ({format_size(_VARIABLES_MAX)})",
            Step.DATA_AS_FILE,
            size=len(text),
            limit=_VARIABLES_MAX,
        )
    clean: dict[str, object] = json.loads(text)
    return clean
