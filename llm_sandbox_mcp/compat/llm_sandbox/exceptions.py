"""The errors of LLM Sandbox, with the same names; like all errors of this package, each is a `SandboxError`."""

from collections.abc import Iterator
from contextlib import contextmanager

from ...base import errors
from ...base.errors import SandboxError


class ContainerError(SandboxError):
    """The engine, or one of its sandboxes, is not available or is gone."""


class ImageNotFoundError(ContainerError):
    """The image does not exist."""


class ImagePullError(ContainerError):
    """An image cannot be pulled or built."""


class SecurityError(SandboxError):
    """Something is not allowed."""


class SecurityViolationError(SecurityError):
    """Code, or a library, is not allowed; nothing was run."""


class InvalidRegexPatternError(SecurityError):
    """A pattern of a security policy is not a regular expression."""


class ResourceError(SandboxError):
    """There are no sandboxes left, or a limit is reached."""


class PoolExhaustedError(ResourceError):
    """All sandboxes of a pool are in use."""

    def __init__(
        self, pool_size: int | None = None, timeout: float | None = None, *, cause: str = "", step: str = ""
    ) -> None:
        waited = "" if timeout is None else f", and none was free within {timeout:g} s"
        super().__init__(cause or f"all {pool_size} sandboxes of the pool are in use{waited}", step)
        self.pool_size = pool_size
        """The maximum number of sandboxes; None if the limit is on sessions or in the engine instead."""
        self.timeout = timeout
        """Seconds that were waited for a sandbox; None if there was no wait."""


class PoolClosedError(ResourceError):
    """The pool was closed."""

    def __init__(self, cause: str = "the pool is closed", step: str = "create another pool") -> None:
        super().__init__(cause, step)


class PoolHealthCheckError(ResourceError):
    """A sandbox of the pool does not answer. A pool replaces such a sandbox, and raises nothing."""

    def __init__(self, container_id: str, reason: str) -> None:
        super().__init__(f"sandbox {container_id} does not answer: {reason}")
        self.container_id = container_id
        self.reason = reason


class ValidationError(SandboxError, ValueError):
    """An argument is wrong; the message names it."""


class ExtraArgumentsError(ValidationError):
    """No argument has that name."""


class DuplicateClientError(ValidationError):
    """A session of a pool was given another client than the pool's."""


class CommandEmptyError(ValidationError):
    """There is no command to run."""

    def __init__(self, cause: str = "the command is empty", step: str = "give one to run") -> None:
        super().__init__(cause, step)


class UnsupportedBackendError(ValidationError):
    """The backend does not exist, or does not support what a parameter asks for."""


class MissingDependencyError(SandboxError):
    """The client library of an engine is not installed."""


class LanguageNotSupportedError(SandboxError):
    """The language is not available."""


class LanguageNotSupportPlotError(SandboxError):
    """The runner of the language draws no figures."""


class LibraryInstallationNotSupportedError(SandboxError):
    """The language has no installable libraries, or the session was opened with `skip_environment_setup`."""


class PackageManagerError(LibraryInstallationNotSupportedError):
    """The language has no package manager."""


class CommandFailedError(SandboxError):
    """A command of this package, such as an installation, failed; the message contains its last output."""

    def __init__(
        self, command: str = "", exit_code: int | None = None, output: str = "", *, cause: str = "", step: str = ""
    ) -> None:
        super().__init__(cause or f"{command} failed with exit code {exit_code}: {output}", step)
        self.command = command
        """What failed, and how, if a program says so; the package itself says it in the message."""
        self.exit_code = exit_code
        self.output = output


class NotOpenSessionError(SandboxError, RuntimeError):
    """The session is not open."""

    def __init__(
        self, cause: str = "the session is not open", step: str = "call open(), or use it in a with statement"
    ) -> None:
        super().__init__(cause, step)


SessionNotOpenError = NotOpenSessionError
"""The name of this error in sessions of a pool."""


class SandboxTimeoutError(SandboxError):
    """Time ran out; the code that was running was stopped."""

    def __init__(self, cause: str, timeout_duration: float | None = None, *, step: str = "") -> None:
        super().__init__(cause, step)
        self.timeout_duration = timeout_duration
        """The time limit, in seconds."""


_TRANSLATED: tuple[tuple[type[SandboxError], type[SandboxError]], ...] = (
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
"""Errors of this package and their names here; subclasses come before their base classes."""


@contextmanager
def translated() -> Iterator[None]:
    """Raises errors of the package as the classes above."""
    try:
        yield
    except errors.InUse as error:
        raise PoolExhaustedError(error.most, error.waited, cause=error.cause, step=error.step) from error
    except errors.UnknownFile as error:
        raise FileNotFoundError(str(error)) from error
    except SandboxError as error:
        for ours, theirs in _TRANSLATED:
            if isinstance(error, ours):
                raise theirs(**error.problem._asdict()) from error
        raise
