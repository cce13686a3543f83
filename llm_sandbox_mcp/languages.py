"""Languages, read from `handlers/*/handler.toml`. A folder is the whole definition: nothing else knows a language."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from .errors import ProfileError, UnknownLanguage, quoted
from .folders import HANDLERS

_MESSAGES = {
    "missing": "missing; it is needed",
    "extra_forbidden": "no such key; handlers/README.md lists them all",
    "tuple_type": "must be a list",
}
"""For kinds of mistakes that the model's own words do not say well."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Runner(_Section):
    """How the runner is started."""

    argv: tuple[str, ...] = Field(min_length=1)


class Build(_Section):
    """How code of a compiled language is built and run; `{build}` is a folder of its own for each program."""

    compile: tuple[str, ...] = Field(min_length=1)
    """Gets the code on its standard input, makes the folder and builds in it; its messages are shown when it fails."""
    run: tuple[str, ...] = Field(min_length=1)
    """Starts what was built."""


class Environment(_Section):
    """Libraries that are prepared once on the host and mounted read-only."""

    manager: str
    python: str


class Requires(_Section):
    """Programs the host, or the image, must have."""

    commands: tuple[str, ...] = ()
    install: str = ""
    """What a person runs to get them."""


class Libraries(_Section):
    """How libraries come into a session. Every argument is a word of its own; nothing passes through a shell."""

    manager: str
    requires: tuple[str, ...] = ()
    name: str
    """The regular expression that one library must match whole."""
    install: tuple[str, ...]
    """The command; the names are appended."""
    installed: tuple[str, ...]
    """The command that prints what is installed."""
    provided: tuple[str, ...] = ()
    """The command that prints what is there before anything is installed; without it, `installed` is asked."""
    installed_pattern: str
    """Applied to each line that either prints, with the groups `name` and `version`."""
    index: str = ""
    """The package index; empty means that `default_index` is asked."""
    default_index: tuple[str, ...] = ()
    """A command on the host that prints the package manager's own index."""
    default_index_pattern: str = ""

    @field_validator("name", "installed_pattern", "default_index_pattern")
    @classmethod
    def _compiles(cls, pattern: str, field: ValidationInfo) -> str:
        try:
            groups = re.compile(pattern)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from error
        if field.field_name == "installed_pattern" and not {"name", "version"} <= groups.groupindex.keys():
            raise ValueError("must have the groups (?P<name>...) and (?P<version>...)")
        if field.field_name == "default_index_pattern" and pattern and not groups.groups:
            raise ValueError("must have a group around the address")
        return pattern


class Example(_Section):
    """A program that shows a model how the language is used here."""

    title: str
    code: str


class Handler(_Section):
    """`handler.toml` of one language."""

    name: str = Field(pattern="^[a-z][a-z0-9_+#-]*$")
    title: str
    aliases: tuple[Annotated[str, Field(pattern="^[a-z0-9][a-z0-9_+#.-]*$")], ...] = ()
    extension: str = Field(pattern=r"^\.[A-Za-z0-9]+$")
    version: tuple[str, ...] = Field(min_length=1)
    stateful: bool
    runner: Runner | None = None
    build: Build | None = None
    env: Mapping[str, str] = {}
    figures: tuple[str, ...] = ()
    """Endings of the figures that its runner writes, the most usual first."""
    environment: Environment | None = None
    requires: Requires = Requires()
    libraries: Libraries | None = None
    examples: tuple[Example, ...] = ()

    @model_validator(mode="after")
    def _one_way_to_run(self) -> Self:
        if (self.runner is None) == (self.build is None):
            raise ValueError("a language has either [runner] or [build]")
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
            language = Language(path.parent, _read(path))
            if (other := here.setdefault(language.name, language)) is not language:
                raise ProfileError(f"{path}: name: {language.name!r} is the name in {other.definition} too")
        found |= here
    _check_aliases(found)
    return Languages(found.values())


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


def _read(path: Path) -> Handler:
    try:
        return Handler.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path}: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"]) or "runner"
        message = _MESSAGES.get(first["type"]) or first["msg"].removeprefix("Value error, ")
        raise ProfileError(f"{path}: {key}: {message}") from error
