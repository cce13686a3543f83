"""Which libraries the profile allows, by name and version, as the ecosystem of each language compares them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ...base.errors import InvalidArgument, PolicyDenied, ProfileError, quoted
from ...base.messages import Problem
from ...base.results import Library
from ...languages.languages import Languages, Libraries
from ...profile.profile import Profile

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

_LONGEST = 200
"""Maximum characters of one name and version; package indexes do not allow longer names."""
_ENTRY = re.compile(r"([^\s<>=!~*]+)\s*(.*)")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+:~_-]*\*?")
_EXACT = re.compile(r"(?:===?|=)?\s*([A-Za-z0-9][A-Za-z0-9.+!_:~-]*)")
_LISTS = ".allow, .deny, .opened"


@dataclass(frozen=True, slots=True)
class _Entry:
    """One name of a list, with the versions that it applies to."""

    text: str
    name: str
    versions: str
    specifiers: "SpecifierSet | None"
    """If the ecosystem has specifiers; elsewhere `versions` is one version, or the beginning of one and `*`."""

    def is_about(self, version: str) -> bool:
        if not self.versions:
            return True
        if self.specifiers is None:
            return fnmatchcase(version, self.versions)
        from packaging.version import InvalidVersion, Version

        try:
            return self.specifiers.contains(Version(version), prereleases=True)
        except InvalidVersion:
            return False


class LibraryRules:
    """The allow and deny lists of one language."""

    def __init__(self, manager: Libraries, allow: Sequence[str], deny: Sequence[str], opened: Sequence[str]) -> None:
        self.manager = manager
        self._allow = [self._entry(text) for text in allow]
        self._deny = [self._entry(text) for text in deny]
        self._opened = frozenset(opened)
        if wrong := [text for text in opened if text.startswith("-") or not text.isprintable() or not text]:
            raise ValueError(f"{wrong[0]!r} is an option, empty, or not printable")

    @property
    def empty(self) -> bool:
        """Whether every library with a plain name is allowed."""
        return not self._allow and not self._deny

    def opens(self, library: str) -> bool:
        """Whether the profile allows exactly this text, whatever it is."""
        return library in self._opened

    def check_names(self, libraries: Iterable[str]) -> None:
        """Raises `InvalidArgument` for a requested library that is not a plain name with an optional version."""
        for why in filter(None, map(self.misnamed, libraries)):
            raise InvalidArgument(f"libraries: {why}")

    def misnamed(self, library: str) -> str:
        """Why a library is not a plain name with an optional version; empty if it is, or if the profile opens it."""
        plain = len(library) <= _LONGEST and re.fullmatch(self.manager.name_pattern, library)
        if plain or self.opens(library):
            return ""
        return (
            f"{quoted(library)} is not a plain name with an optional version for {self.manager.manager}; options, "
            f"URLs, paths and more than {_LONGEST} characters are refused"
        )

    def check(self, libraries: Iterable[str]) -> None:
        """Raises `PolicyDenied` for a requested library if no version that could be installed is allowed."""
        for why in filter(None, map(self.denial, libraries)):
            raise PolicyDenied(f"libraries: {why.cause}", why.step)

    def denial(self, library: str) -> Problem | None:
        """Why no version of a requested library is allowed that could be installed; None if one is."""
        if self.opens(library):
            return None
        name, version = self._parts(library)
        if self._allow and not [
            entry for entry in self._allow if entry.name == name and (not version or entry.is_about(version))
        ]:
            allowed = ", ".join(entry.text for entry in self._allow[:10])
            return Problem(f"{quoted(library)} is not among those that the profile allows", f"use one of {allowed}")
        for entry in self._deny:
            if self._denies(entry, name) and (not entry.versions or (version and entry.is_about(version))):
                return Problem(f"{quoted(library)} is denied by the profile ({entry.text})", "do without it")
        return None

    def refusal(self, libraries: Iterable[str], installed: Iterable[Library]) -> Problem | None:
        """Why the installed libraries, dependencies included, must not stay; None if they can."""
        asked = {self._parts(library)[0] for library in libraries if not self.opens(library)}
        for library in installed:
            name = self.manager.normalized(library.name)
            shown = f"{quoted(library.name)} {quoted(library.version)}"
            for entry in self._deny:
                if self._denies(entry, name) and entry.is_about(library.version):
                    denies = f"which the profile denies ({entry.text})"
                    return Problem(f"{shown} was installed, {denies}", "use no library that needs it")
            if self._allow and name in asked:
                about = [entry for entry in self._allow if entry.name == name]
                if not any(entry.is_about(library.version) for entry in about):
                    allowed = ", ".join(entry.text for entry in about)
                    allows = f"the profile allows {allowed or 'no such library'}"
                    return Problem(f"{shown} was installed, but {allows}", "request an allowed version")
        return None

    def _parts(self, library: str) -> tuple[str, str]:
        """The name of a requested library, and its version if that is exact and not a range."""
        found = re.fullmatch(self.manager.name_pattern, library)
        groups = found.groupdict() if found is not None else {}
        exact = _EXACT.fullmatch((groups.get("version") or "").strip())
        return self.manager.normalized(groups.get("name") or library), exact[1] if exact is not None else ""

    def _denies(self, entry: _Entry, name: str) -> bool:
        """Whether an entry denies this name, in any major version."""
        return entry.name in (name, re.sub(rf"(?:{self.manager.major_pattern})\Z", "", name))

    def _entry(self, text: str) -> _Entry:
        found = _ENTRY.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"{text!r} is not a name with an optional version")
        name, versions = found[1], found[2]
        if self.manager.names != "pep503":
            if versions and not _VERSION.fullmatch(versions):
                raise ValueError(f"{text!r}: the version must be exact here, or end with '*'")
            return _Entry(text, name, versions, None)
        from packaging.specifiers import InvalidSpecifier, SpecifierSet

        try:
            return _Entry(text, self.manager.normalized(name), versions, SpecifierSet(versions))
        except InvalidSpecifier as error:
            raise ValueError(f"{text!r}: {error}") from error


def library_rules(profile: Profile, languages: Languages) -> Mapping[str, LibraryRules]:
    """The rules of every language that has a package manager; `ProfileError` with the key if they have a mistake."""
    rules = {}
    for name, language in languages.items():
        section, manager = profile.language(name), language.handler.libraries
        if manager is None:
            if section.allow or section.deny or section.opened:
                raise profile.mistake(f"languages.{name}{_LISTS}", f"{name} has no package manager", "remove them")
            continue
        try:
            rules[name] = LibraryRules(manager, section.allow, section.deny, section.opened)
        except ValueError as error:
            raise profile.mistake(f"languages.{name}{_LISTS}", str(error)) from error
    return rules


def library_mistakes(
    profile: Profile, languages: Languages, rules: Mapping[str, LibraryRules]
) -> Iterator[ProfileError]:
    """An error for each library of the profile that is no name of one, or that the profile itself does not allow."""
    for name, language in languages.items():
        section, warm, manager = (
            profile.language(name),
            profile.pool.libraries.get(name, ()),
            language.handler.libraries,
        )
        if manager is None:
            if warm:
                yield profile.mistake(f"pool.libraries.{name}", f"{name} has no package manager", "remove the key")
            continue
        # Sessions may install only what `allow` names; the operator may prepare more than that.
        prepared = LibraryRules(manager, (), section.deny, section.opened)
        key = f"languages.{name}"
        opened = f"if it is right as it is, add it to {key}.opened, too"
        yield from (profile.mistake(f"{key}.libraries", *why) for why in _refusals(prepared, section.libraries, opened))
        yield from (profile.mistake(f"pool.libraries.{name}", *why) for why in _refusals(rules[name], warm, opened))


def _refusals(rules: LibraryRules, libraries: Iterable[str], opened: str) -> Iterator[Problem]:
    for library in libraries:
        if misnamed := rules.misnamed(library):
            yield Problem(misnamed, opened)
        elif denied := rules.denial(library):
            yield denied
