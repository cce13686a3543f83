"""Hints: what an error of the code means in a sandbox, and what to do, found in the end of what the code printed.

`handler.toml` of each language says how its errors look. Code chooses what it prints, so a hint repeats no text of it
but the name of a module, as far as the handler's pattern allows.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..backends.layout import DATA, WORKDIR
from ..base.errors import InvalidArgument, PolicyDenied, quoted
from ..base.messages import Note, Step, listed
from ..base.open_folders import View
from ..base.policy import Network
from ..languages.languages import Hint, Language
from ..languages.modules import without_library

_SEARCHED = 4096
"""Bytes at the end of standard error that are searched: interpreters print the error last."""
_LONGEST_NAME = 200
"""Characters of a module; what has more is not the name of one."""
_HOSTS_SHOWN = 5
_UNREACHABLE = Hint(
    stderr="Name (or service not known|does not resolve)|Temporary failure in name resolution|Network is unreachable",
    means="network",
)
"""The errors of the C libraries of Linux, which programs of all languages print."""
_BELOW_DATA = rf"(?<![^\s'\"`\u2018\u201c(\[<:=]){DATA}/"
"""The beginning of a path there, in quotes or not; not a folder of that name elsewhere."""
_PATH = rf"(?P<place>{_BELOW_DATA}[\w.-]+)(?P<git>[^\s'\"`\u2019\u201d]{{0,300}}/\.git(?![\w.-]))?"
"""A path in a folder of the operator's, or the part of it that leads to the files of a repository."""
_DENIED, _READ_ONLY = "[Pp]ermission denied", "[Rr]ead-only file system"
_REFUSED = re.compile(
    f"{_BELOW_DATA}.{{0,300}}({_DENIED}|{_READ_ONLY})"
    f"|(({_DENIED}|{_READ_ONLY}).{{0,60}}|AccessDeniedException: ){_PATH}"
)
"""What they print if code may not read or write a path there."""

_READ_ONLY_SYSTEM = Note(
    "read_only_system", f"code writes in its working directory, {WORKDIR}, and in /tmp", "use relative paths"
)

Check = Callable[[Language, str], None]
"""Raises a request error for a library that could not be installed."""


@dataclass(frozen=True, slots=True)
class Printed:
    """What a run printed, and what the meaning of an error in it depends on."""

    stderr: bytes
    languages: Sequence[Language]
    """Those of the programs that may have printed it, the language of the code first."""
    network: Network
    """What the sandbox can reach."""
    views: Mapping[View, bool]
    """The operator's folders: each is mounted, or else a copy."""
    others: Collection[Language] = ()
    """Languages whose package managers all code can call."""
    given: bool = False
    """Whether standard input had a text."""
    failed: bool = True


def hint_of(printed: Printed, check: Check) -> Note | None:
    """The hint about the last error of which a handler knows the meaning; None if there is none.

    Code that did not fail may have handled its errors. Only a call of a package manager still counts, which has done
    nothing, and all errors of code that starts other programs, as a shell goes on after them.
    """
    text = printed.stderr[-_SEARCHED:].decode(errors="replace")
    all_count = printed.failed or len(printed.languages) > 1
    hints = [(language, hint) for language in printed.languages for hint in language.handler.hints]
    elsewhere = [(language, hint) for language in printed.others for hint in language.handler.hints]
    counting = [(printed.languages[0], _UNREACHABLE), *hints] if all_count else []
    counting += [(language, hint) for language, hint in (*hints, *elsewhere) if hint.means == "install"]
    found = [
        (match.start(), language, hint, match)
        for language, hint in counting
        for match in re.finditer(hint.stderr, text, re.MULTILINE)
    ]
    *_, (refused_at, refused) = (-1, None), *_refusals(text, printed.views if all_count else {})
    if not found:
        return refused or (_READ_ONLY_SYSTEM if all_count and re.search(_READ_ONLY, text) else None)
    at, language, hint, match = max(found, key=lambda one: one[0])
    if refused_at > at:
        return refused
    if hint.means == "network":
        return _about_network(printed.network)
    if hint.means == "input":
        # If a text was too short, or another one than standard input, the error itself says so.
        return None if printed.given else Note("no_input", "standard input is empty", Step.GIVE_INPUT)
    if hint.means is None:
        return Note("hint", hint.says)
    return _about_library(language, hint.means, match.groupdict(), check)


def _refusals(text: str, views: Mapping[View, bool]) -> Iterator[tuple[int, Note]]:
    """Where code was refused a path in a folder of the operator's, and why."""
    places = {view.place: view for view in views}
    for match in _REFUSED.finditer(text):
        read_only = re.search(_READ_ONLY, match[0]) is not None
        for path in re.finditer(_PATH, match[0]):
            view = places.get(path["place"])
            if view is None:
                continue
            note = _about_view(view, mounted=views[view], read_only=read_only, git=path["git"] is not None)
            if note is not None:
                yield match.start(), note
                break


def _about_view(view: View, *, mounted: bool, read_only: bool, git: bool) -> Note | None:
    """Why a path in a folder was refused; None if the folder is not the reason.

    A mount says that it is read-only to all who write, but to those who append to a file that they could not write
    anyway: it refuses them, and those who read, for the permissions of the file. Code can read all files of a copy, so
    it can only have been writing.
    """
    if mounted and not read_only:
        cause = f"in {view.place}, code can read only what every user of this machine can read, and write nothing"
        return Note("private_file", cause, Step.COPY_FILES, place=view.place)
    if git:
        cause = f"code can read repositories in {view.place}, and write nothing in their .git"
        step = "commit in a copy in the working directory (cp -r, then chmod -R u+w), or outside of the sandbox"
        return Note("read_only_repository", cause, step, place=view.place)
    if not view.folder.writable:
        step = "write to the working directory, or ask the operator to open the folder for writing, with :rw"
        return Note("read_only_folder", f"{view.place} is open for reading only", step, place=view.place)
    return None


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
    if len(module) > _LONGEST_NAME:
        return None
    if nothing := without_library(language, module):
        return Note("missing_library", f"code asked for {nothing.cause}", nothing.step)
    library = manager.modules.get(module) or groups.get("library")
    # Code may ask for what nobody knows, so the note says who asked.
    if means == "library":
        cause, wanted = (
            f"code asked for {quoted(module)}, which is not installed",
            f"the library that contains {module}",
        )
    elif library:
        cause, wanted = f"code asked for {quoted(library)}, and cannot install libraries itself", library
    else:
        cause, wanted = "code cannot install libraries itself", "their names"
    try:
        if library:
            check(language, library)
    except PolicyDenied as denied:
        return Note("missing_library", f"{cause}; {denied}")
    except InvalidArgument:  # not the name of a library
        return None
    return Note("missing_library", cause, Step.INSTALL, library=library or wanted, language=language.name)
