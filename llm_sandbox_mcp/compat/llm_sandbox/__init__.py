"""The library for programs that are not async, with the names and the behaviour of LLM Sandbox.

The package itself has the same names, so that a program that moves over only changes its import.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .backends import get_backend as get_backend
    from .backends import list_backends as list_backends
    from .exceptions import CommandEmptyError as CommandEmptyError
    from .exceptions import CommandFailedError as CommandFailedError
    from .exceptions import ContainerError as ContainerError
    from .exceptions import DuplicateClientError as DuplicateClientError
    from .exceptions import ExtraArgumentsError as ExtraArgumentsError
    from .exceptions import ImageNotFoundError as ImageNotFoundError
    from .exceptions import ImagePullError as ImagePullError
    from .exceptions import InvalidRegexPatternError as InvalidRegexPatternError
    from .exceptions import LanguageNotSupportedError as LanguageNotSupportedError
    from .exceptions import LanguageNotSupportPlotError as LanguageNotSupportPlotError
    from .exceptions import LibraryInstallationNotSupportedError as LibraryInstallationNotSupportedError
    from .exceptions import MissingDependencyError as MissingDependencyError
    from .exceptions import NotOpenSessionError as NotOpenSessionError
    from .exceptions import PackageManagerError as PackageManagerError
    from .exceptions import PoolClosedError as PoolClosedError
    from .exceptions import PoolExhaustedError as PoolExhaustedError
    from .exceptions import PoolHealthCheckError as PoolHealthCheckError
    from .exceptions import ResourceError as ResourceError
    from .exceptions import SandboxTimeoutError as SandboxTimeoutError
    from .exceptions import SecurityError as SecurityError
    from .exceptions import SecurityViolationError as SecurityViolationError
    from .exceptions import SessionNotOpenError as SessionNotOpenError
    from .exceptions import UnsupportedBackendError as UnsupportedBackendError
    from .exceptions import ValidationError as ValidationError
    from .interactive import InteractiveOutput as InteractiveOutput
    from .interactive import InteractiveSandboxSession as InteractiveSandboxSession
    from .interactive import InteractiveSettings as InteractiveSettings
    from .interactive import KernelType as KernelType
    from .plots import ArtifactSandboxSession as ArtifactSandboxSession
    from .pools import ExhaustionStrategy as ExhaustionStrategy
    from .pools import PoolConfig as PoolConfig
    from .pools import PoolManager as PoolManager
    from .pools import create_pool_manager as create_pool_manager
    from .registry import BackendCapabilities as BackendCapabilities
    from .registry import BackendDefinition as BackendDefinition
    from .registry import register_backend as register_backend
    from .security import RestrictedModule as RestrictedModule
    from .security import SecurityIssueSeverity as SecurityIssueSeverity
    from .security import SecurityPattern as SecurityPattern
    from .security import SecurityPolicy as SecurityPolicy
    from .security import get_security_policy as get_security_policy
    from .security import validate_package_name as validate_package_name
    from .session import SandboxSession as SandboxSession
    from .session import create_session as create_session
    from .values import ConsoleOutput as ConsoleOutput
    from .values import ExecutionResult as ExecutionResult
    from .values import FileType as FileType
    from .values import PlotOutput as PlotOutput
    from .values import SandboxBackend as SandboxBackend
    from .values import StreamCallback as StreamCallback
    from .values import SupportedLanguage as SupportedLanguage

_MODULES = {
    "ArtifactSandboxSession": "plots",
    "BackendCapabilities": "registry",
    "BackendDefinition": "registry",
    "CommandEmptyError": "exceptions",
    "CommandFailedError": "exceptions",
    "ConsoleOutput": "values",
    "ContainerError": "exceptions",
    "DuplicateClientError": "exceptions",
    "ExecutionResult": "values",
    "ExhaustionStrategy": "pools",
    "ExtraArgumentsError": "exceptions",
    "FileType": "values",
    "ImageNotFoundError": "exceptions",
    "ImagePullError": "exceptions",
    "InteractiveOutput": "interactive",
    "InteractiveSandboxSession": "interactive",
    "InteractiveSettings": "interactive",
    "InvalidRegexPatternError": "exceptions",
    "KernelType": "interactive",
    "LanguageNotSupportPlotError": "exceptions",
    "LanguageNotSupportedError": "exceptions",
    "LibraryInstallationNotSupportedError": "exceptions",
    "MissingDependencyError": "exceptions",
    "NotOpenSessionError": "exceptions",
    "PackageManagerError": "exceptions",
    "PlotOutput": "values",
    "PoolClosedError": "exceptions",
    "PoolConfig": "pools",
    "PoolExhaustedError": "exceptions",
    "PoolHealthCheckError": "exceptions",
    "PoolManager": "pools",
    "ResourceError": "exceptions",
    "RestrictedModule": "security",
    "SandboxBackend": "values",
    "SandboxSession": "session",
    "SandboxTimeoutError": "exceptions",
    "SecurityError": "exceptions",
    "SecurityIssueSeverity": "security",
    "SecurityPattern": "security",
    "SecurityPolicy": "security",
    "SecurityViolationError": "exceptions",
    "SessionNotOpenError": "exceptions",
    "StreamCallback": "values",
    "SupportedLanguage": "values",
    "UnsupportedBackendError": "exceptions",
    "ValidationError": "exceptions",
    "create_pool_manager": "pools",
    "create_session": "session",
    "get_backend": "backends",
    "get_security_policy": "security",
    "list_backends": "backends",
    "register_backend": "registry",
    "validate_package_name": "security",
}
"""The module of each name; imported at the first use."""

if not TYPE_CHECKING:  # type checkers know the names from above, and would take this for a list without any
    __all__ = [*_MODULES]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
