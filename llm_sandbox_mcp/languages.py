"""Languages, read from `handlers/*/handler.toml`. A folder is the whole definition: nothing else knows a language."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from .errors import ProfileError, UnknownLanguage, quoted
from .folders import HANDLERS
from .toml_model import Many, Section, as_model, read_toml

_KEYS = "handlers/README.md"


def _expression(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return pattern


Expression = Annotated[str, AfterValidator(_expression)]
"""A regular expression that compiles."""


class Runner(Section):
    """How the runner is started."""

    argv: Many[str] = Field(min_length=1)
    tells: bool = False
    """Whether it can be asked what the names of the code stand for."""
    ends: bool = False
    """Whether it can be asked to do what the interpreter does at its end."""


class Build(Section):
    """How code of a compiled language is built and run; `{build}` is a folder of its own for each program."""

    compile: Many[str] = Field(min_length=1)
    """Gets the code on its standard input, makes the folder and builds in it; its messages are shown when it fails."""
    run: Many[str] = Field(min_length=1)
    """Starts what was built."""


class Environment(Section):
    """Libraries that are prepared once on the host and mounted read-only."""

    manager: str
    python: str


class Requires(Section):
    """Programs the host, or the image, must have."""

    commands: Many[str] = ()
    install: str = ""
    """What a person runs to get them."""


class Manager(Section):
    """A package manager. Every argument is a word of its own; nothing passes through a shell."""

    manager: str
    requires: Many[str] = ()
    """Programs that only installing needs."""
    install: Many[str]
    """The command; the names are appended."""
    installed: Many[str]
    """The command that prints what is installed."""
    everything: Many[str] = ()
    """The command that prints dependencies too, where `installed` leaves them out."""
    provided: Many[str] = ()
    """The command that prints what is there before anything is installed; without it, `installed` is asked."""


class Libraries(Manager):
    """How libraries come into a session."""

    alternatives: Many[Manager] = ()
    """Used where the first is missing, in order; all take the same names, and print the same lines."""
    name_pattern: Expression
    """The regular expression that one library must match whole, with the groups `name` and `version` if it has any."""
    names: Literal["plain", "pep503"] = "plain"
    """How names and versions are compared in the lists of a profile."""
    major_pattern: Expression = ""
    """Matches what ends a name where each major version has a name of its own: denied without it, all are."""
    installed_pattern: Expression
    """Applied to each line that either prints, with the groups `name` and `version`."""
    index: str = ""
    """The package index; empty means that `default_index` is asked."""
    files_pattern: Expression = "(?!)"
    """Matches paths below the index of what never changes under its name and is kept for later installations."""
    default_index: Many[str] = ()
    """A command on the host that prints the package manager's own index."""
    default_index_pattern: Expression = ""

    @field_validator("installed_pattern")
    @classmethod
    def _finds_both(cls, pattern: str) -> str:
        if not {"name", "version"} <= re.compile(pattern).groupindex.keys():
            raise ValueError("must have the groups (?P<name>...) and (?P<version>...)")
        return pattern

    @field_validator("default_index_pattern")
    @classmethod
    def _finds_it(cls, pattern: str) -> str:
        if pattern and not re.compile(pattern).groups:
            raise ValueError("must have a group around the address")
        return pattern


class Grammar(Section):
    """How its code is parsed, where rules apply to it; `names.scm` beside the file says what names something."""

    module: str
    """The Python module whose `language()` is the tree-sitter grammar."""
    install: str
    """The command that installs it, for messages."""
    importers: Many[str] = ()
    """Functions whose first argument, a literal, is a module."""
    builtin: Many[str] = ()
    """Modules whose names are there without an import: `builtins.eval` is `eval`."""
    dotted: bool = True
    """Whether a dot ends a part of a name; false where it is a letter, as in R's `system.time`."""
    noise: Expression = ""
    """A regular expression for parts of names that mean nothing, such as `^node:`."""
    signs: Mapping[str, Expression] = {}
    """For names without a letter, such as Ruby's backtick, what code has wherever one of them stands."""


class Example(Section):
    """A program that shows a model how the language is used here."""

    title: str
    code: str


class Handler(Section):
    """`handler.toml` of one language."""

    name: str = Field(pattern="^[a-z][a-z0-9_+#-]*$")
    title: str
    aliases: Many[Annotated[str, Field(pattern="^[a-z0-9][a-z0-9_+#.-]*$")]] = ()
    extension: str = Field(pattern=r"^\.[A-Za-z0-9]+$")
    version_command: Many[str] = Field(min_length=1)
    """Prints the version, in a sandbox."""
    stateful: bool
    runner: Runner | None = None
    build: Build | None = None
    env: Mapping[str, str] = {}
    figures: Many[str] = ()
    """Endings of the figures that its runner writes, the most usual first."""
    uses: Many[str] = ()
    """What it is good for, in a few words each."""
    environment: Environment | None = None
    requires: Requires = Requires()
    libraries: Libraries | None = None
    grammar: Grammar | None = None
    examples: Many[Example] = ()

    @model_validator(mode="after")
    def _one_way_to_run(self) -> Self:
        if (self.runner is None) == (self.build is None):
            raise ValueError("runner: a language has either [runner] or [build]")
        return self


@dataclass(frozen=True, slots=True)
class Language:
    """One handler folder, parsed."""

    folder: Path
    handler: Handler

    @property
    def name(self) -> str:
        return self.handler.name

    @property
    def definition(self) -> Path:
        """The file that it was read from."""
        return self.folder / "handler.toml"


class Languages(Mapping[str, Language]):
    """The languages of this server, by name; aliases find them too."""

    def __init__(self, languages: Iterable[Language]) -> None:
        self._by_name = {language.name: language for language in languages}
        self._aliases = {alias: name for name, found in self._by_name.items() for alias in found.handler.aliases}

    @property
    def prepared(self) -> Mapping[str, bool]:
        """Of each language, whether libraries are prepared for it before any session asks."""
        return {name: language.handler.environment is not None for name, language in self._by_name.items()}

    def __getitem__(self, name: str) -> Language:
        key = name.strip().lower()
        try:
            return self._by_name[self._aliases.get(key, key)]
        except KeyError:
            raise UnknownLanguage(f"language {quoted(name, 40)} is not known; there are: {', '.join(self)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)


def load_languages(folders: Iterable[str] = ()) -> Languages:
    """Reads the languages that come along, then those of further folders; a later folder may replace a name.

    Raises `ProfileError` with file and key for any mistake: a language is never dropped silently.
    """
    found: dict[str, Language] = {}
    for root in (HANDLERS, *map(Path, folders)):
        here: dict[str, Language] = {}
        for path in _definitions(root):
            language = Language(path.parent, as_model(Handler, read_toml(path), path, reference=_KEYS))
            if language.handler.grammar is not None and not (language.folder / "names.scm").is_file():
                raise ProfileError(f"{path}: grammar: needs a file names.scm beside it")
            if (other := here.setdefault(language.name, language)) is not language:
                raise ProfileError(f"{path}: name: {language.name!r} is the name in {other.definition} too")
        found |= here
    _check_aliases(found)
    return Languages(found.values())


@cache
def included_languages() -> Languages:
    """The languages that come along, read once."""
    return load_languages()


def _definitions(root: Path) -> list[Path]:
    paths = sorted(root.glob("*/handler.toml"))
    if not paths:
        reason = "holds no folder with a handler.toml" if root.is_dir() else "no such folder of handlers"
        raise ProfileError(f"{root}: {reason}; see handlers.folders in the profile")
    return paths


def _check_aliases(languages: Mapping[str, Language]) -> None:
    claimed = {name: (language, "name") for name, language in languages.items()}
    for language in languages.values():
        for alias in language.handler.aliases:
            other, key = claimed.setdefault(alias, (language, "aliases"))
            if other is not language:
                raise ProfileError(f"{language.definition}: aliases: {alias!r} is in {key} of {other.definition} too")
