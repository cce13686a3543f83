"""What can go wrong, sorted by who must act.

A non-zero exit, an exception in user code, a timeout, exhausted memory and cut output are not here: they are values of
an `Execution`. Messages are one line: the cause, then the next step.
"""

import re

from .messages import joined

_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


def quoted(text: str, limit: int = 60) -> str:
    """A name or path that a caller or a sandbox chose, for a message: in quotes, on one line, cut where it is long."""
    shown = repr(text[:limit])
    # Escapes are up to ten characters long.
    return shown if len(text) <= limit and len(shown) <= 2 * limit else f"{shown[: limit + 1]}...{shown[0]}"


class SandboxError(Exception):
    """Any error that this package raises on purpose; a `Message`.

    `cause` alone is the whole line where its next step is the same for every caller.
    """

    def __init__(self, cause: str = "", step: str = "", **facts: object) -> None:
        super().__init__(joined(cause, step))
        self.cause = cause
        self.step = step
        self.facts = facts

    @property
    def code(self) -> str:
        """Such as unknown_session: the class in words."""
        return _WORD.sub("_", type(self).__name__).lower()


class ProfileError(SandboxError):
    """The operator's profile, or a handler folder, has a mistake; raised at start only, with file and key."""

    def __init__(self, message: str, key: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.key = key
        """Such as limits.memory, where it is about one."""
        self.reason = reason
        """The message without file and key."""


class BadAddress(SandboxError):
    """The server cannot, or may not, listen where the operator told it to; raised at start only."""


class RequestError(SandboxError):
    """The caller asked for something that cannot be; nothing was started, nothing was lost."""


class InvalidArgument(RequestError):
    """An argument is out of its range or malformed."""


class UnknownLanguage(RequestError, KeyError):
    """No handler has that name. A `KeyError` too, as languages are a mapping: `in` and `get` work."""

    __str__ = Exception.__str__  # a KeyError's puts it into quotes


class UnknownSession(RequestError):
    """The session never existed, expired, or was closed."""


class UnknownArtifact(RequestError):
    """The session's store has no artifact of that name."""


class BadPath(RequestError):
    """A path leaves the place it must stay in."""


class BadHostPath(BadPath):
    """A file on the server's own machine may not, or cannot, be read or written."""


class UnknownFile(BadPath):
    """The sandbox has no such file or folder."""


class PolicyDenied(RequestError):
    """The operator's policy does not allow it; a caller can only narrow the policy."""


class InstallFailed(SandboxError):
    """Libraries could not be installed: the package manager refused or failed, or no index answered, or not in time.

    The message has the package manager's last lines, where it said something.
    """


class Unavailable(SandboxError):
    """The code provably never ran; trying again is safe."""


class EngineUnavailable(Unavailable):
    """The engine cannot make sandboxes here; the message says why and what fixes it."""


class StartFailed(Unavailable):
    """The engine was there but the sandbox, or the runner in it, did not start."""


class ImageMissing(StartFailed):
    """The engine has no image of that name."""


class ImageFailed(StartFailed):
    """An image cannot be pulled or built; the message has the engine's last words."""


class Unschedulable(StartFailed):
    """No machine of the engine's has room for the sandbox, or may take it."""


class MissingPackage(ProfileError):
    """What the profile names needs a package that is not installed."""


class ListeningFailed(SandboxError):
    """What listens inside a sandbox did not start, or ended; nothing else of the sandbox is lost by it."""


class InUse(Unavailable):
    """What there may be is in use."""

    def __init__(self, message: str, most: int | None = None, waited: float | None = None) -> None:
        super().__init__(message)
        self.most = most
        """How many sandboxes there may be, where that is what is reached."""
        self.waited = waited
        """Seconds, where one was waited for."""


class CapacityReached(InUse):
    """All sessions, or all sandboxes, that the profile allows are in use."""


class PoolTimeout(InUse):
    """All sandboxes the profile allows were in use for as long as a request waits for one."""


class SandboxLost(SandboxError):
    """The sandbox died after the code was sent; its outcome is unknown and it is never run again for the caller."""


class OutOfMemory(SandboxLost):
    """All of the sandbox was ended at its memory limit, not only a process of the code's."""


class Evicted(SandboxLost):
    """The machine that it was on, or the engine, needed the room and ended it."""


class NodeLost(SandboxLost):
    """The machine that it was on went away, or is silent."""
