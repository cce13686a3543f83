"""Hints: what an error of the code means in a sandbox, and what to do, found in the end of what the code printed.

`handler.toml` of each language says how its errors look. Code chooses what it prints, so a hint repeats no text of it
but the name of a module, as far as the handler's pattern allows.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from ..backends.layout import DATA
from ..errors import InvalidArgument, PolicyDenied, quoted
from ..languages import Hint, Language
from ..messages import Note, Step, listed
from ..policy import Network

_SEARCHED = 4096
"""Bytes at the end of standard error that are searched: interpreters print the error last."""
_HOSTS_SHOWN = 5
_UNREACHABLE = Hint(
    stderr="Name (or service not known|does not resolve)|Temporary failure in name resolution|Network is unreachable",
    means="network",
)
"""The errors of the C libraries of Linux, which programs of all languages print."""
_BELOW_DATA = rf"(?<![^\s'\"`\u2018\u201c(\[<:=]){DATA}/"
"""The beginning of a path there, in quotes or not; not a folder of that name elsewhere."""
_PRIVATE = Hint(
    stderr=(
        f"{_BELOW_DATA}.{{0,300}}[Pp]ermission denied"
        f"|([Pp]ermission denied.{{0,60}}|AccessDeniedException: ){_BELOW_DATA}"
    ),
    means="private",
)
"""What they print about a file in a folder of the user's that code may not read."""

Check = Callable[[Language, str], None]
"""Raises a request error for a library that could not be installed."""


def hint_of(languages: Sequence[Language], stderr: bytes, network: Network, check: Check) -> Note | None:
    """The hint about the last error of which a handler knows the meaning; None if there is none.

    `languages` are those of the programs that may have printed it, `network` is what the sandbox can reach.
    """
    text = stderr[-_SEARCHED:].decode(errors="replace")
    known = [(language, hint) for language in languages for hint in language.handler.hints]
    found = [
        (match.start(), language, hint, match)
        for language, hint in ((languages[0], _UNREACHABLE), (languages[0], _PRIVATE), *known)
        for match in re.finditer(hint.stderr, text, re.MULTILINE)
    ]
    if not found:
        return None
    _, language, hint, match = max(found, key=lambda one: one[0])
    if hint.means == "network":
        return _about_network(network)
    if hint.means == "input":
        return Note("no_input", "standard input is empty", Step.GIVE_INPUT)
    if hint.means == "private":
        cause = f"below {DATA}, code can read only what every user of this machine can read"
        return Note("private_file", cause, Step.COPY_FILES)
    if hint.means is None:
        return Note("hint", hint.says)
    return _about_library(language, hint.means, match.groupdict(), check)


def _about_network(network: Network) -> Note | None:
    if network.mode == "open":
        return None
    hosts = [destination.host for destination in network.destinations]
    if not hosts:
        return Note("no_network", "code here has no network", Step.BRING_DATA)
    return Note("no_network", f"code here reaches only {listed(hosts, _HOSTS_SHOWN)}", Step.BRING_DATA)


def _about_library(
    language: Language, means: Literal["library", "install"], groups: Mapping[str, str | None], check: Check
) -> Note | None:
    manager = language.handler.libraries
    if manager is None:
        return None
    module = groups.get("module") or groups.get("library") or ""
    library = manager.modules.get(module) or groups.get("library")
    if means == "library":
        cause, wanted = f"{quoted(module)} is not installed", f"the library that contains {module}"
    else:
        cause, wanted = "code cannot install libraries", "its name"
    try:
        if library:
            check(language, library)
    except PolicyDenied as denied:
        return Note("missing_library", f"{cause}; {denied}")
    except InvalidArgument:  # not the name of a library
        return None
    return Note("missing_library", cause, Step.INSTALL, library=library or wanted, language=language.name)
