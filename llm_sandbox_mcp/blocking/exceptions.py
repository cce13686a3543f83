"""The errors of LLM Sandbox under their names; each is a `SandboxError`, as all errors of this package are."""

from collections.abc import Iterator
from contextlib import contextmanager

from .. import errors
from ..errors import SandboxError


class ContainerError(SandboxError):
    """The engine, or a sandbox of it, cannot be had or is gone."""


class ImageNotFoundError(ContainerError):
    """There is no such image."""


class ImagePullError(ContainerError):
    """An image cannot be pulled, or built."""


class SecurityError(SandboxError):
    """Something is not allowed."""


class SecurityViolationError(SecurityError):
    """Code, or a library, is not allowed; nothing was run."""


class InvalidRegexPatternError(SecurityError):
    """A pattern of a security policy is no regular expression."""


class ResourceError(SandboxError):
    """There are no sandboxes left, or a limit is reached."""


class PoolExhaustedError(ResourceError):
    """All sandboxes of a pool are in use."""

    def __init__(self, message: str, pool_size: int | None = None, timeout: float | None = None) -> None:
        super().__init__(message)
        self.pool_size = pool_size
        """How many sandboxes there may be; None where sessions, or an engine, are what there are no more of."""
        self.timeout = timeout
        """Seconds that were waited, where one was waited for."""


class PoolClosedError(ResourceError):
    """The pool was closed."""


class PoolHealthCheckError(ResourceError):
    """A sandbox of the pool does not answer. A pool replaces such a sandbox, and raises nothing."""

    def __init__(self, container_id: str, reason: str) -> None:
        super().__init__(f"sandbox {container_id} does not answer: {reason}")
        self.container_id = container_id
        self.reason = reason


class ValidationError(SandboxError, ValueError):
    """An argument is wrong; the message names it."""


class ExtraArgumentsError(ValidationError):
    """There is no argument of that name."""


class DuplicateClientError(ValidationError):
    """A session of a pool was given another client than the pool has."""


class CommandEmptyError(ValidationError):
    """There is no command to run."""


class UnsupportedBackendError(ValidationError):
    """There is no such backend, or it cannot do what a parameter asks of it."""


class MissingDependencyError(SandboxError):
    """The client library of an engine is not installed."""


class LanguageNotSupportedError(SandboxError):
    """There is no such language here."""


class LanguageNotSupportPlotError(SandboxError):
    """The runner of the language draws no figures."""


class LibraryInstallationNotSupportedError(SandboxError):
    """The language has no libraries that could be installed, or the session was opened without."""


class PackageManagerError(LibraryInstallationNotSupportedError):
    """The language has no package manager."""


class CommandFailedError(SandboxError):
    """A command of ours, such as an installation, failed; the message has its last words."""


class NotOpenSessionError(SandboxError, RuntimeError):
    """The session is not open."""

    def __init__(self, message: str = "the session is not open; call open(), or use it in a with statement") -> None:
        super().__init__(message)


SessionNotOpenError = NotOpenSessionError
"""The name that sessions of a pool have for it."""


class SandboxTimeoutError(SandboxError):
    """Time ran out. What was running was stopped."""

    def __init__(self, message: str, timeout_duration: float | None = None) -> None:
        super().__init__(message)
        self.timeout_duration = timeout_duration
        """Seconds that there were."""


_TRANSLATED: tuple[tuple[type[SandboxError], type[Exception]], ...] = (
    (errors.UnknownFile, FileNotFoundError),
    (errors.UnknownLanguage, LanguageNotSupportedError),
    (errors.UnknownSession, NotOpenSessionError),
    (errors.PolicyDenied, SecurityViolationError),
    (errors.InstallFailed, CommandFailedError),
    (errors.RequestError, ValidationError),
    (errors.MissingPackage, MissingDependencyError),
    (errors.ProfileError, ValidationError),
    (errors.ImageMissing, ImageNotFoundError),
    (errors.ImageFailed, ImagePullError),
    (errors.Unavailable, ContainerError),
    (errors.SandboxLost, ContainerError),
)
"""The more special ones first."""


@contextmanager
def translated() -> Iterator[None]:
    """Raises errors of the package under the names above."""
    try:
        yield
    except errors.InUse as error:
        raise PoolExhaustedError(str(error), error.most, error.waited) from error
    except SandboxError as error:
        for ours, theirs in _TRANSLATED:
            if isinstance(error, ours):
                raise theirs(str(error)) from error
        raise
