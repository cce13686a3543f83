"""What callers get back. Everything here is data: nothing in it decides what the server does next."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from .messages import Note

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
"""How a run ended, judged from outside the sandbox."""

SessionState = Literal["kept", "fresh", "ended"]
"""`kept`: the next run finds variables and files. `fresh`: state was lost, the next starts anew. `ended`: closed."""

StreamName = Literal["stdout", "stderr"]

DEFAULT_TIMEOUT = 30.0
"""Seconds for one run, where the caller names none and the profile allows it."""

OnOutput = Callable[[StreamName, str], Awaitable[None]]
"""Receives what code prints while it runs, as it appears, whole characters only."""

OnProgress = Callable[[str], Awaitable[None]]
"""Receives one line at a time about long work of our own, such as preparing libraries."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that a run left behind, kept in the server's store."""

    name: str
    """Path below the working directory, or the name of a figure; unique in its session."""
    mime_type: str
    size: int
    """Bytes."""
    width: int = 0
    """Pixels, as `height`; 0 when it is no image, or not the kind of image that its name says."""
    height: int = 0


@dataclass(frozen=True, slots=True)
class Output:
    """One stream of a run: head and tail of the text, and how much between them was left out."""

    text: str
    omitted: int = 0
    """Bytes left out of `text`."""
    raw: bytes | None = None
    """What the text was made of where it was not valid, None where it was; see `replaced`."""

    @property
    def replaced(self) -> bool:
        """Whether bytes that are not UTF-8, or NUL, were replaced by U+FFFD."""
        return self.raw is not None


@dataclass(frozen=True, slots=True)
class Raised:
    """An error that code did not catch."""

    type: str
    """The name of its class."""
    message: str
    traceback: str


@dataclass(frozen=True, slots=True)
class Told:
    """What code left behind in its interpreter, as that tells it."""

    values: Mapping[str, object]
    """What the variables of the run and the names that its code bound stand for, as far as JSON can say it."""
    left_out: tuple[str, ...]
    """Names of such values that JSON cannot say, or that are too large; modules, functions and classes aside."""
    error: Raised | None


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
    """Seconds from sending the code to its end."""
    session_id: str
    session_state: SessionState
    artifacts: tuple[Artifact, ...] = ()
    """New or changed in this run."""
    notes: tuple[Note, ...] = ()
    """One line each: what was cut, lost, or hit, and what to do about it."""
    told: Told | None = None
    """What its names stand for and its error as data; where that was asked for, and the interpreter still there."""


@dataclass(frozen=True, slots=True)
class Library:
    """An installed library."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Installation:
    """What a session's libraries are after an installation."""

    session_id: str
    libraries: tuple[Library, ...]


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """How many sandboxes stand where."""

    warm: int
    """Ready, unused."""
    warming: int
    leased: int
    closing: int


@dataclass(frozen=True, slots=True)
class PoolKey(PoolCounts):
    """The sandboxes for one language, made of one image; both can be empty."""

    language: str
    image: str


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """The artifacts of all sessions together, also of those that ended."""

    artifacts: int
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class PoolStatistics(PoolCounts):
    """All sandboxes of a server, and what became of those it had."""

    keys: tuple[PoolKey, ...]
    max: int
    """Sandboxes that there may be at once."""
    waiting: int
    """Requests that have none yet."""
    hits: int
    """Requests that got a warm one; `misses` had one made."""
    misses: int
    opened: int
    closed: int
    failed: int
    """Sandboxes that could not be made or warmed, or ended by themselves before they were used."""
    last_error: str
    acquire_ms: float | None
    """Median wait of the last requests, in milliseconds."""


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A live session as its owner sees it."""

    id: str
    running: bool
    languages: tuple[str, ...]
    """Those with a live runner."""
    runs: int
    age: float
    """Seconds since it was opened."""
    expires_in: float
    """Seconds until it is closed if nothing runs in it."""
