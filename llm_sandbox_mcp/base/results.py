"""The results that callers get. They are only data: the server never decides by them what to do next."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from .messages import Note
from .principal import Principal

Status = Literal[
    "ok",
    "error",
    "timeout",
    "cpu_limit",
    "out_of_memory",
    "process_limit",
    "disk_limit",
    "inode_limit",
    "file_limit",
    "output_limit",
    "cancelled",
]
"""How a run ended, as determined from outside the sandbox."""

SessionState = Literal["kept", "fresh", "ended"]
"""`kept`: the next run has variables and files. `fresh`: state was lost, the next run starts fresh. `ended`: closed."""

StreamName = Literal["stdout", "stderr"]

DEFAULT_TIMEOUT = 30.0
"""Seconds for one run if the caller gives no timeout and the profile allows as much."""

REPEATED = 8 << 10
"""Bytes of one text that an answer has twice, for clients that show a model only one half of it; a longer text is whole
in one half only, and in a file."""

OnOutput = Callable[[StreamName, str], Awaitable[None]]
"""Receives the output of code while it runs, as it appears, in whole characters."""

OnProgress = Callable[[str], Awaitable[None]]
"""Receives progress of long work of the server, such as preparing libraries, one line at a time."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that a run left behind, kept in the server's store."""

    name: str
    """The path below the working directory, or the name of a figure; unique in its session."""
    mime_type: str
    size: int
    """Bytes."""
    width: int = 0
    """Pixels, like `height`; 0 if the file is not an image, or not of the kind that its name suggests."""
    height: int = 0


@dataclass(frozen=True, slots=True)
class Overview:
    """One small picture of pictures that are too large, or too many, to be shown as they are."""

    picture: bytes = b""
    """A complete image; empty if there is none."""
    names: tuple[str, ...] = ()
    """The artifacts on it, in this order."""
    lacking: str = ""
    """Why there is none."""


@dataclass(frozen=True, slots=True)
class HostFile:
    """A file that a call wrote on this machine."""

    path: str
    beside: str = ""
    """What has the wanted name, and stays as it is because this server did not write it; empty if there is nothing."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What became of artifacts that were to be saved on this machine."""

    files: tuple[HostFile, ...]
    failed: Mapping[str, str]
    """Why the others were not saved, by their names."""


@dataclass(frozen=True, slots=True)
class Output:
    """One stream of a run: the head and tail of the text, and how much between them was left out."""

    text: str
    omitted: int = 0
    """Bytes left out of `text`."""
    raw: bytes | None = None
    """The original bytes if they were not valid text, else None; see `replaced`."""

    @property
    def replaced(self) -> str:
        """What was replaced by U+FFFD: NUL, bytes that are not UTF-8, or both; empty for nothing."""
        if self.raw is None:
            return ""
        invalid = self.raw.decode(errors="ignore") != self.raw.decode(errors="replace")
        kinds = [("NUL bytes", b"\0" in self.raw), ("bytes that are not UTF-8", invalid)]
        return " and ".join(kind for kind, found in kinds if found)


@dataclass(frozen=True, slots=True)
class Execution:
    """The result of one run."""

    status: Status
    exit_code: int
    stdout: Output
    stderr: Output
    result: str | None
    """The value of the last expression, as the language prints it."""
    duration: float
    """Seconds from sending the code until it ended."""
    session_id: str
    session_state: SessionState
    artifacts: tuple[Artifact, ...] = ()
    """Files that this run created or changed."""
    notes: tuple[Note, ...] = ()
    """One line each: something was truncated or lost, or a limit was hit; and what to do about it."""
    overview: Overview | None = None
    """For a model, if some pictures cannot be shown as they are."""


@dataclass(frozen=True, slots=True)
class Library:
    """An installed library."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Installation:
    """The result of one installation."""

    session_id: str
    libraries: tuple[Library, ...]
    """All that are installed in the session now."""
    before: tuple[Library, ...]
    """All that were."""
    status: Literal["ok", "cancelled"] = "ok"
    """`cancelled`: it was stopped, and what is installed now is unknown."""
    notes: tuple[Note, ...] = ()
    """One line each: a name was that of a module, or a library has another version now."""


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """How many sandboxes are in each state."""

    warm: int
    """Ready and unused."""
    warming: int
    leased: int
    closing: int


@dataclass(frozen=True, slots=True)
class Preload:
    """What the interpreters of warm sandboxes import while they wait, as the last of them did."""

    modules: tuple[str, ...]
    skipped: Mapping[str, str]
    """The other modules that the profile names, and why they are not imported."""
    seconds: float
    """How long the imports took."""
    memory: int
    """Bytes that they added to what one interpreter has for itself."""


@dataclass(frozen=True, slots=True)
class PoolKey(PoolCounts):
    """The sandboxes for one language that were made from one image; both can be empty."""

    language: str
    image: str
    preload: Preload | None = None
    """None if nothing is imported ahead, or has been so far."""


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """The artifacts of all sessions together, including those that ended."""

    artifacts: int
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class PoolStatistics(PoolCounts):
    """All sandboxes of a server now, and counts of those it had."""

    keys: tuple[PoolKey, ...]
    max: int
    """The maximum number of sandboxes at the same time."""
    waiting: int
    """Requests that have no sandbox yet."""
    hits: int
    """Requests that got a warm sandbox; `misses` counts those that got one without an interpreter."""
    misses: int
    opened: int
    closed: int
    failed: int
    """Sandboxes that could not be made or warmed, or that ended on their own before they were used."""
    last_error: str
    acquire_ms: float | None
    """Median waiting time of the last requests, in milliseconds."""


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A live session, as its owner sees it."""

    id: str
    owner: Principal
    """Who opened it."""
    running: bool
    languages: tuple[str, ...]
    """The languages that have a live runner."""
    runs: int
    age: float
    """Seconds since it was opened."""
    expires_in: float
    """Seconds until the session is closed, if nothing runs in it."""


class Missing(NamedTuple):
    """Something of a session that cannot be saved, or opened again."""

    language: str
    """Empty for a file."""
    name: str
    kind: str
    """The type of a variable, or what else it is."""
    reason: str

    def __str__(self) -> str:
        kind = f" ({self.kind})" if self.kind else ""
        return f"{self.language or 'files'}: {self.name}{kind}: {self.reason}"


@dataclass(frozen=True, slots=True)
class SavedSession:
    """A session that was saved, as its owner sees it."""

    name: str
    age: float
    """Seconds since it was saved."""
    size: int
    """Bytes in the store."""
    variables: Mapping[str, int]
    """How many variables it has, by language."""
    files: int
    """Its files and folders."""
    missing: tuple[Missing, ...] = ()
    """What could not be saved."""
    problem: str = ""
    """Why it cannot be opened; empty if it can."""
    notes: tuple[Note, ...] = ()


def described_contents(variables: Mapping[str, int], files: int) -> str:
    """What a saved session has, in words."""
    kept = [f"{number} variable{'s' * (number != 1)} of {language}" for language, number in variables.items()]
    return ", ".join((*kept, f"{files} files and folders"))


@dataclass(frozen=True, slots=True)
class Opened:
    """A session that was opened from a saved one, or branched from another."""

    session_id: str
    """Of the new session."""
    language: str
    """The one that its sandbox is made for."""
    variables: Mapping[str, int]
    """How many variables it has again, by language."""
    files: int
    """Its files and folders."""
    missing: tuple[Missing, ...] = ()
    """What could not be saved, or not be opened again."""
    notes: tuple[Note, ...] = ()
