"""What can go wrong, sorted by who must act.

A non-zero exit, an exception in user code, a timeout, exhausted memory and truncated output are not errors here: they
are values of an `Execution`. Messages are one line: the cause, then the next step.
"""

import re

from .messages import Problem, Step, joined

_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


def quoted(text: str, limit: int = 60) -> str:
    """A name or path that a caller or a sandbox chose, for a message: in quotes, on one line, cut if it is long."""
    shown = repr(text[:limit])
    # Escapes are up to ten characters long.
    return shown if len(text) <= limit and len(shown) <= 2 * limit else f"{shown[: limit + 1]}...{shown[0]}"


class SandboxError(Exception):
    """Base class of all errors that this package raises on purpose; a `Message`.

    If the next step is the same for every caller, `cause` contains it and is the whole line.
    """

    def __init__(self, cause: str = "", step: str = "", **facts: object) -> None:
        super().__init__(joined(cause, step, facts))
        self.cause = cause
        self.step = step
        self.facts = facts

    @property
    def problem(self) -> Problem:
        """Its cause and its step, with its facts, as a value; for a row of `doctor`, or for another error."""
        return Problem(self.cause, self.step.format_map(self.facts) if isinstance(self.step, Step) else self.step)

    @property
    def code(self) -> str:
        """The name of the class in words, such as unknown_session."""
        return _WORD.sub("_", type(self).__name__).lower()


class ProfileError(SandboxError):
    """The operator's profile, or a handler folder, has a mistake; raised only at start, with file and key."""

    def __init__(self, reason: str, step: str = "", *, file: object = None, key: str = "") -> None:
        places = [str(place) for place in (file, key) if place]
        super().__init__(": ".join([*places, reason]), step)
        self.key = key
        """The key that the error is about, such as limits.memory; empty if there is none."""
        self.reason = reason
        """The cause without file and key."""


class BadAddress(SandboxError):
    """The server cannot, or must not, listen at the address that the operator chose; raised only at start."""


class RequestError(SandboxError):
    """The caller requested something that is not possible; nothing was started, nothing was lost."""


class InvalidArgument(RequestError):
    """An argument is out of its range or malformed."""


class UnknownLanguage(RequestError, KeyError):
    """No handler has that name. Also a `KeyError`, so that `in` and `get` work: languages are a mapping."""

    __str__ = Exception.__str__  # that of KeyError would put the message into quotes


class UnknownSession(RequestError):
    """The session never existed, expired, or was closed."""


class UnknownRun(RequestError):
    """No run with that id goes on, or its result is no longer kept."""


class UnknownArtifact(RequestError):
    """The session's store has no artifact of that name."""


class UnknownState(RequestError):
    """The caller has no saved session of that name."""


class BadState(RequestError):
    """A saved session cannot be opened: it is damaged, does not fit, or was saved by a later version."""


class BadPath(RequestError):
    """A path leads out of the folder that it must stay in."""


class BadHostPath(BadPath):
    """A file on the server's own machine must not, or cannot, be read or written."""


class UnknownFile(BadPath):
    """The sandbox has no such file or folder."""


class PolicyDenied(RequestError):
    """The operator's policy does not allow it; a caller can only narrow the policy."""


class InstallFailed(SandboxError):
    """Libraries could not be installed: the package manager failed, no index answered, or it took too long.

    The message contains the last lines of the package manager, if it printed any.
    """


class Unavailable(SandboxError):
    """The code definitely did not run; trying again is safe."""


class EngineUnavailable(Unavailable):
    """The engine cannot make sandboxes here; the message contains the reason and the fix."""


class StartFailed(Unavailable):
    """The engine is available, but the sandbox, or the runner in it, did not start."""


class ImageMissing(StartFailed):
    """The engine has no image of that name."""


class ImageFailed(StartFailed):
    """An image cannot be pulled or built; the message contains the last lines of the engine."""


class Unschedulable(StartFailed):
    """No machine of the engine has room for the sandbox, or is allowed to run it."""


class MissingPackage(ProfileError):
    """Something that the profile names needs a package that is not installed."""


class StoreFailed(Unavailable):
    """The place where sessions are saved cannot be used: it is full, read-only, gone, or too slow."""


class ListeningFailed(SandboxError):
    """The listener inside a sandbox did not start, or ended; everything else in the sandbox still works."""


class InUse(Unavailable):
    """As many as allowed are in use already."""

    def __init__(self, cause: str, step: str = "", *, most: int | None = None, waited: float | None = None) -> None:
        super().__init__(cause, step)
        self.most = most
        """The maximum number of sandboxes, if that is the limit that was reached."""
        self.waited = waited
        """Seconds that the request waited, if it did."""


class CapacityReached(InUse):
    """All the sessions, or all the sandboxes, that the profile allows are in use."""


class PoolTimeout(InUse):
    """All the sandboxes that the profile allows were in use for as long as a request may wait for one."""


class SandboxLost(SandboxError):
    """The sandbox died after the code was sent; the outcome is unknown, and the code is never run again."""


class OutOfMemory(SandboxLost):
    """The whole sandbox was killed at its memory limit, not only a process of the code."""


class Evicted(SandboxLost):
    """The machine of the sandbox, or the engine, needed the room and ended the sandbox."""


class NodeLost(SandboxLost):
    """The machine of the sandbox is gone, or does not answer."""


class EngineSilent(SandboxLost):
    """The engine stopped answering while the code ran. What the code did is unknown, but the sandbox may still exist.

    Its session keeps it, with all state, and asks the engine again at its next use.
    """
