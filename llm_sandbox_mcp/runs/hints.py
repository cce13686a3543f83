"""Hints: what an error of the code means in a sandbox, and what to do, found in the end of what the code printed.

`handler.toml` of each language says how its errors look. Code chooses what it prints, so a hint repeats no text of it
but the name of a module, as far as the handler's pattern allows.
"""

import re
from collections.abc import Callable

from ..errors import InvalidArgument, PolicyDenied, quoted
from ..languages import Language
from ..messages import Note, Step
from ..policy import Network

_SEARCHED = 4096
"""Bytes at the end of standard error that are searched: interpreters print the error last."""
_HOSTS_SHOWN = 5

Check = Callable[[str], None]
"""Raises a request error for a library that could not be installed."""


def hint_of(language: Language, stderr: bytes, network: Network, check: Check) -> Note | None:
    """The hint about the last error of which the handler knows the meaning; None if there is none.

    `network` is what the sandbox can reach.
    """
    text = stderr[-_SEARCHED:].decode(errors="replace")
    found = [
        (match.start(), hint, match)
        for hint in language.handler.hints
        for match in re.finditer(hint.stderr, text, re.MULTILINE)
    ]
    if not found:
        return None
    _, hint, match = max(found, key=lambda one: one[0])
    if hint.means == "network":
        return _about_network(network)
    if hint.says:
        return Note("hint", hint.says)
    groups = match.groupdict()
    module = groups.get("module") or groups.get("library")
    if module is None:
        return None
    cause = "libraries are not installed by code" if hint.means == "install" else f"{quoted(module)} is not installed"
    return _about_library(language, module, groups.get("library") or "", cause, check)


def _about_network(network: Network) -> Note | None:
    if network.mode == "open":
        return None
    hosts = [destination.host for destination in network.destinations]
    if not hosts:
        return Note("no_network", "code here has no network", Step.BRING_DATA)
    more = len(hosts) - _HOSTS_SHOWN
    shown = ", ".join(hosts[:_HOSTS_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return Note("no_network", f"code here reaches only {shown}", Step.BRING_DATA)


def _about_library(language: Language, module: str, usual: str, cause: str, check: Check) -> Note | None:
    """`usual` is the library's name if it is the module's, too."""
    if language.handler.libraries is None:
        return None
    library = language.handler.libraries.modules.get(module, usual)
    try:
        if library:
            check(library)
    except PolicyDenied as denied:
        return Note("missing_library", f"{cause}; {denied}")
    except InvalidArgument:  # not the name of a library
        return None
    return Note("missing_library", cause, Step.INSTALL, library=library or f"the library that contains {module}")
