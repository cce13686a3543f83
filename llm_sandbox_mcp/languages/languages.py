"""Languages, read from `handlers/*/handler.toml`. The folder defines a language completely: no other code knows it."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from ..base.errors import ProfileError, UnknownLanguage, quoted
from ..base.similar import available
from ..host.folders import HANDLERS
from ..toml.model import Many, Section, as_model, read_toml

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
    inspects: bool = False
    """Whether it can report the values of the names in the code."""
    input: bool = False
    """Whether it gives code a standard input with text."""
    notebook_lines: Expression = ""
    """Lines that change nothing outside of a notebook; they are left out of code that cannot be compiled with them."""
    exits: bool = False
    """Whether it can do at the end of a run what the interpreter does when it exits."""
    preloads: bool = False
    """Whether it can import modules before any code asks for them."""


class State(Section):
    """How the variables of a live interpreter are saved and opened again: code that runs in it, with `{folder}`."""

    save: str
    open: str


class Build(Section):
    """How code of a compiled language is built and run; `{build}` is a separate folder for each program."""

    compile: Many[str] = Field(min_length=1)
    """Gets the code on standard input, creates the folder and builds in it; its messages are shown when it fails."""
    run: Many[str] = Field(min_length=1)
    """Starts the program that was built."""
    sources: Many[str] = ()
    """Ends of the names of files in the working directory that a build can read; after a change, it is done again."""


class Environment(Section):
    """Libraries that are prepared once on the host and mounted read-only."""

    manager: str
    python: str


class Requires(Section):
    """Programs that the host, or the image, must have."""

    commands: Many[str] = ()
    install: str = ""
    """The command with which a person installs them."""


class Manager(Section):
    """A package manager. Every argument is a separate string; no shell is involved."""

    manager: str
    requires: Many[str] = ()
    """Programs that are needed only to install libraries."""
    install: Many[str]
    """The command that installs libraries; their names are appended."""
    installed: Many[str]
    """The command that prints what is installed."""
    everything: Many[str] = ()
    """The command that prints dependencies as well, if `installed` leaves them out."""
    programs: Many[str] = ()
    """Folders with the programs that libraries bring: code of every language finds them."""
    provided: Many[str] = ()
    """The command that prints which libraries exist before any installation; without it, `installed` is used."""


class Instead(Section):
    """Names that callers ask for, and that do not exist here."""

    names: Many[str] = ()
    says: str = ""
    """The next step for such a caller."""


class Libraries(Manager):
    """How libraries are installed into a session."""

    alternatives: Many[Manager] = ()
    """Tried in this order if the first is missing; all take the same names, and print the same lines."""
    name_pattern: Expression
    """The regular expression that a whole library must match; it can have the groups `name` and `version`."""
    names: Literal["plain", "pep503"] = "plain"
    """How names and versions are compared in the lists of a profile."""
    several: bool = False
    """Whether a session can have several versions of a library at once; otherwise the installed one hides the other."""
    major_pattern: Expression = ""
    """Matches the end of a name if each major version has a separate name: a deny entry without it denies all."""
    installed_pattern: Expression
    """Applied to each line that these commands print, with the groups `name` and `version`."""
    modules: Mapping[str, str] = {}
    """The libraries of modules that have other names, for hints and for callers who name the module.

    With a version if not every one has the module.
    """
    included_pattern: Expression = "(?!)"
    """Matches the modules that the language has without any library."""
    instead: Many[Instead] = ()
    """Modules that no library brings, such as those of another system."""
    env: Mapping[str, str] = {}
    """Variables of the code of all languages, since programs that libraries bring need them."""
    index: str = ""
    """The package index; if empty, the command `default_index` prints it."""
    files_pattern: Expression = "(?!)"
    """Matches the paths below the index of files that never change and are kept for later installations."""
    default_index: Many[str] = ()
    """A command on the host that prints the index that the package manager uses by default."""
    default_index_pattern: Expression = ""

    def normalized(self, name: str) -> str:
        """A name as it is compared with others."""
        return re.sub(r"[-_.]+", "-", name).lower() if self.names == "pep503" else name

    @field_validator("installed_pattern")
    @classmethod
    def _has_both_groups(cls, pattern: str) -> str:
        if not {"name", "version"} <= re.compile(pattern).groupindex.keys():
            raise ValueError("must have the groups (?P<name>...) and (?P<version>...)")
        return pattern

    @field_validator("default_index_pattern")
    @classmethod
    def _has_group(cls, pattern: str) -> str:
        if pattern and not re.compile(pattern).groups:
            raise ValueError("must have a group around the address")
        return pattern


class Hint(Section):
    """What an error means in a sandbox, recognized by what it prints; `runs/hints.py` says after which code."""

    stderr: Expression
    """Searched for in the end of standard error; `^` and `$` match at each line.

    For a library, its group `module` is the module that is missing; the group `library` instead, if a library usually
    has the name of its module. For an attempt to install one, the group `library` is its name, if it was given.
    """
    means: Literal["library", "install", "network", "input"] | None = None
    """A missing library, an attempt to install one with a package manager, a network that cannot be reached, or that
    code reads from an empty standard input.
    """
    says: str = ""
    """The hint itself, if it means something else: the cause, a semicolon, the next step."""

    @model_validator(mode="after")
    def _one_meaning(self) -> Self:
        if (self.means is None) == (not self.says):
            raise ValueError("a hint has either means or says")
        groups = re.compile(self.stderr).groupindex.keys()
        if self.means == "library" and not groups & {"module", "library"}:
            raise ValueError("stderr must have the group (?P<module>...) or (?P<library>...)")
        return self


class Grammar(Section):
    """How code is parsed when rules apply to it; `names.scm` in the same folder finds the names in it."""

    module: str
    """The Python module whose `language()` is the tree-sitter grammar."""
    install: str
    """The command that installs it, for messages."""
    importers: Many[str] = ()
    """Functions whose first argument, if it is a literal, names a module."""
    builtin: Many[str] = ()
    """Modules whose names are available without an import: `builtins.eval` is `eval`."""
    dotted: bool = True
    """Whether a dot separates the parts of a name; false if it is part of a name, as in `system.time` of R."""
    noise: Expression = ""
    """A regular expression for parts of names that mean nothing, such as `^node:`."""
    signs: Mapping[str, Expression] = {}
    """For names without a letter, such as the backtick of Ruby: an expression that matches wherever code uses one."""


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
    """Prints the version; it runs in a sandbox."""
    stateful: bool
    runner: Runner | None = None
    build: Build | None = None
    state: State | None = None
    env: Mapping[str, str] = {}
    offline: Mapping[str, str] = {}
    """Variables of the code of all languages that has no network: package managers that it calls fail at once."""
    figures: Many[str] = ()
    """File extensions of the figures that its runner writes, the most common first."""
    overview: Many[str] = ()
    """Draws pictures of sessions in all languages as one small picture, where they are too large or too many."""
    companions: Many[str] = ()
    """Languages whose programs code of this one starts: their prepared libraries and those of the session are there."""
    uses: Many[str] = ()
    """What the language is good for, in a few words each."""
    environment: Environment | None = None
    requires: Requires = Requires()
    libraries: Libraries | None = None
    grammar: Grammar | None = None
    hints: Many[Hint] = ()
    """The meaning of errors that code runs into because it is in a sandbox."""
    instead: Instead = Instead()
    """Other languages that callers ask for although this one can do the work."""
    examples: Many[Example] = ()

    @model_validator(mode="after")
    def _one_way_to_run(self) -> Self:
        if (self.runner is None) == (self.build is None):
            raise ValueError("runner: a language has either [runner] or [build]")
        if self.state is not None and self.runner is None:
            raise ValueError("state: only a language with [runner] has variables to save")
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
        """For each language, whether its libraries are prepared before any session needs them."""
        return {name: language.handler.environment is not None for name, language in self._by_name.items()}

    @property
    def preloading(self) -> Collection[str]:
        """The languages whose interpreters can import modules before any code asks for them."""
        runners = {name: language.handler.runner for name, language in self._by_name.items()}
        return [name for name, runner in runners.items() if runner is not None and runner.preloads]

    def __getitem__(self, name: str) -> Language:
        key = name.strip().lower()
        try:
            return self._by_name[self._aliases.get(key, key)]
        except KeyError:
            steps = [one.handler.instead.says for one in self._by_name.values() if key in one.handler.instead.names]
            step = steps[0] if steps else available(name, self)
            raise UnknownLanguage(f"unknown language {quoted(name, 40)}", step) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)


def load_languages(folders: Iterable[str] = ()) -> Languages:
    """Reads the included languages, then those of further folders; a later folder can replace a language.

    Raises `ProfileError` with file and key for any mistake: a language is never dropped silently.
    """
    found = {**_included()}
    for folder in folders:
        found |= _languages_in(Path(folder))
    _check_aliases(found)
    _check_companions(found)
    return Languages(found.values())


@cache
def included_languages() -> Languages:
    """The languages that are included in this package."""
    return load_languages()


@cache
def _included() -> Mapping[str, Language]:
    """Read once in a process: a program may open many services, and to read these takes longer than all else of it."""
    return _languages_in(HANDLERS)


def _languages_in(root: Path) -> dict[str, Language]:
    found: dict[str, Language] = {}
    for path in _definitions(root):
        language = Language(path.parent, as_model(Handler, read_toml(path), path, reference=_KEYS))
        if language.handler.grammar is not None and not (language.folder / "names.scm").is_file():
            step = "add it to the same folder"
            raise ProfileError("the file names.scm is missing", step, file=path, key="grammar")
        if (other := found.setdefault(language.name, language)) is not language:
            reason = f"{language.name!r} is also the name in {other.definition}"
            raise ProfileError(reason, "change one of them", file=path, key="name")
    return found


def _definitions(root: Path) -> list[Path]:
    paths = sorted(root.glob("*/handler.toml"))
    if not paths:
        reason = "contains no folder with a handler.toml" if root.is_dir() else "is not a folder"
        raise ProfileError(reason, "correct handlers.folders in the profile", file=root)
    return paths


def _check_aliases(languages: Mapping[str, Language]) -> None:
    claimed = {name: (language, "name") for name, language in languages.items()}
    for language in languages.values():
        for alias in language.handler.aliases:
            other, key = claimed.setdefault(alias, (language, "aliases"))
            if other is not language:
                reason = f"{alias!r} is also in {key} of {other.definition}"
                raise ProfileError(reason, "change one of them", file=language.definition, key="aliases")


def _check_companions(languages: Mapping[str, Language]) -> None:
    for language in languages.values():
        for name in language.handler.companions:
            if name not in languages:
                reason, step = f"{name!r} is not the name of a language", available(name, languages)
                raise ProfileError(reason, step, file=language.definition, key="companions")
            if languages[name].handler.companions:
                reason, step = f"{name!r} has companions itself", "name a language that has none"
                raise ProfileError(reason, step, file=language.definition, key="companions")
