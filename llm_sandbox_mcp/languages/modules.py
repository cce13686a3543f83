"""What brings a module that code or a caller names: a library of another name, the language itself, or nothing here."""

import re
from collections.abc import Collection, Iterable

from ..base.errors import InvalidArgument, quoted
from ..base.messages import Note, Problem
from .languages import Language, Libraries

_LONGEST = 200
"""Characters of a library; what has more is the name of none."""


def without_library(language: Language, module: str) -> Problem | None:
    """What to say of a module that no library brings, after its name; None for others."""
    manager = language.handler.libraries
    if manager is None:
        return None
    if step := _instead_of(manager, module):
        return Problem(f"{quoted(module)}, which cannot be installed", step)
    if _included(manager, module):
        cause = f"{quoted(module)}, which is a part of {language.handler.title}"
        return Problem(cause, "do without it if it is missing here")
    return None


def as_libraries(
    language: Language, asked: Iterable[str], opened: Collection[str] = ()
) -> tuple[tuple[str, ...], list[Note]]:
    """The libraries for names that may be those of modules, and a note for each kind of names that are.

    Names that are `opened` mean what they say. Raises `InvalidArgument` for a module that no library brings.
    """
    manager = language.handler.libraries
    if manager is None:
        return tuple(asked), []
    libraries: list[str] = []
    included: list[str] = []
    renamed: list[str] = []
    for text in asked:
        start, end = _span_of_name(manager, text)
        name = text[start:end]
        if text in opened or len(text) > _LONGEST:
            libraries.append(text)
        elif step := _instead_of(manager, name):
            raise InvalidArgument(f"libraries: {quoted(name)} cannot be installed", step)
        elif _included(manager, name):
            included.append(name)
        elif library := _library_of(manager, name):
            if follows := text[end:]:
                library = _name_of(manager, library)  # a version that the caller names is the one that counts
            renamed.append(f"{name} is installed as {library}")
            libraries.append(text[:start] + library + follows)
        else:
            libraries.append(text)
    notes = []
    if renamed:
        notes.append(Note("library_renamed", f"libraries: {', '.join(renamed)}", names=renamed))
    if included:
        cause = f"libraries: {', '.join(included)}: part of {language.handler.title}, so nothing is installed for it"
        notes.append(Note("library_included", cause, names=included))
    return tuple(libraries), notes


def among(libraries: Iterable[str], modules: Iterable[str], language: Language) -> list[str]:
    """The modules that one of the libraries brings, going by its name."""
    manager = language.handler.libraries
    if manager is None:
        return []
    known = {manager.normalized(_name_of(manager, library)) for library in libraries}
    tops = {module: module.partition(".")[0] for module in modules}
    return [one for one, top in tops.items() if manager.normalized(_library_of(manager, top) or top) in known]


def _instead_of(manager: Libraries, name: str) -> str:
    wanted = manager.normalized(name)
    return next((one.says for one in manager.instead if wanted in map(manager.normalized, one.names)), "")


def _included(manager: Libraries, name: str) -> bool:
    return re.fullmatch(manager.included_pattern, name) is not None


def _library_of(manager: Libraries, name: str) -> str:
    """The library of a module that has another name; empty if the name is that of a library."""
    wanted = manager.normalized(name)
    library = next((one for module, one in manager.modules.items() if manager.normalized(module) == wanted), name)
    return "" if manager.normalized(library) == wanted else library


def _name_of(manager: Libraries, library: str) -> str:
    start, end = _span_of_name(manager, library)
    return library[start:end]


def _span_of_name(manager: Libraries, text: str) -> tuple[int, int]:
    """Where the name is in a library; all of it is if the pattern does not say."""
    found = re.fullmatch(manager.name_pattern, text) if len(text) <= _LONGEST else None
    if found is None or "name" not in found.re.groupindex:
        return 0, len(text)
    return found.span("name")
