"""What callers ask for: one value, which each face makes, which is checked once, and which is handed on whole."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

from ..base.errors import InvalidArgument, quoted
from ..base.messages import Note
from ..base.policy import OF_RUN
from ..base.principal import Principal
from ..languages.languages import Language
from ..runs.requests import RunRequest


class Options(TypedDict, total=False):
    """The options of a run."""

    language: str
    """By default that of the session, or python."""
    libraries: Sequence[str]
    """To be installed first."""
    timeout: float | None
    """Seconds; by default 30 or the profile's limit, whichever is less."""
    variables: Mapping[str, object] | None
    """Values of JSON by their names, set before the code runs, in languages that take variables."""
    stdin: str
    """What the code reads from standard input."""
    limits: Mapping[str, float] | None
    """Lower limits, with the names and units of `Policy`: of a run for this run, of a sandbox for a new session."""


def only_options(given: Mapping[str, object]) -> None:
    """Raises `TypeError` for an argument that is no option, as Python does: programs set nothing else of an `Ask`."""
    for name in given:
        if name not in Options.__annotations__:
            raise TypeError(f"unexpected keyword argument {name!r}; options: {', '.join(Options.__annotations__)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Work that a caller asks for: to run code, to install libraries, or to install them and then run code."""

    caller: Principal
    origin: tuple[str, ...] = ()
    """Where it came from over HTTP: first what a caller can have few of, such as its address, then its connection."""
    code: str | None = None
    """None if libraries are to be installed, and nothing is to be run."""
    session_id: str = ""
    """Empty for a new session."""
    keep_session: bool = True
    language: str = "python"
    libraries: Sequence[str] = ()
    timeout: float | None = None
    variables: Mapping[str, object] | None = None
    stdin: str = ""
    limits: Mapping[str, float] | None = None
    looks: bool = False
    """Whether its caller looks at the pictures of a run."""

    def check_types(self) -> None:
        """Raises `InvalidArgument` for values of other types: type checkers find them, most programs have none."""
        libraries: Iterable[object] = (self.libraries,) if isinstance(self.libraries, str) else self.libraries
        listed = libraries is self.libraries and all(isinstance(name, str) for name in libraries)
        for name, value, right, expected in (
            ("code", self.code, isinstance(self.code, str | None), "text"),
            ("stdin", self.stdin, isinstance(self.stdin, str), "text"),
            ("variables", self.variables, isinstance(self.variables, Mapping | None), "a mapping of names to values"),
            ("libraries", self.libraries, listed, 'a list of strings, such as ["numpy"]'),
        ):
            if not right:
                raise InvalidArgument(f"{name} must be {expected}; got {quoted(repr(value), 40)}")

    @property
    def limits_of_run(self) -> dict[str, float]:
        """The limits that it lowers for this run."""
        lower = {name: value for name, value in (self.limits or {}).items() if name in OF_RUN}
        return lower if self.timeout is None else {**lower, "timeout": self.timeout}

    @property
    def limits_of_sandbox(self) -> dict[str, float]:
        """The limits that it lowers for a new session."""
        return {name: value for name, value in (self.limits or {}).items() if name not in OF_RUN}


@dataclass(frozen=True, slots=True)
class Checked:
    """An ask with nothing wrong in it, but that its session may not be open: nothing was opened or started."""

    ask: Ask
    language: Language
    request: RunRequest | None
    """What runs, within the limits of the profile; None for an installation."""
    notes: Sequence[Note] = ()

    def within(self, session_id: str) -> "Checked":
        """This ask, for a session that its face has opened meanwhile."""
        return replace(self, ask=replace(self.ask, session_id=session_id))
