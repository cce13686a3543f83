"""Run code written by language models in isolated sandboxes: an async MCP server and a Python library."""

from importlib import import_module

TYPE_CHECKING = False  # the import of typing would take longer than all else here
if TYPE_CHECKING:
    from .blocking.backends import BackendCapabilities as BackendCapabilities
    from .blocking.backends import BackendDefinition as BackendDefinition
    from .blocking.backends import get_backend as get_backend
    from .blocking.backends import list_backends as list_backends
    from .blocking.backends import register_backend as register_backend
    from .blocking.exceptions import CommandEmptyError as CommandEmptyError
    from .blocking.exceptions import CommandFailedError as CommandFailedError
    from .blocking.exceptions import ContainerError as ContainerError
    from .blocking.exceptions import DuplicateClientError as DuplicateClientError
    from .blocking.exceptions import ExtraArgumentsError as ExtraArgumentsError
    from .blocking.exceptions import ImageNotFoundError as ImageNotFoundError
    from .blocking.exceptions import ImagePullError as ImagePullError
    from .blocking.exceptions import InvalidRegexPatternError as InvalidRegexPatternError
    from .blocking.exceptions import LanguageNotSupportedError as LanguageNotSupportedError
    from .blocking.exceptions import LanguageNotSupportPlotError as LanguageNotSupportPlotError
    from .blocking.exceptions import LibraryInstallationNotSupportedError as LibraryInstallationNotSupportedError
    from .blocking.exceptions import MissingDependencyError as MissingDependencyError
    from .blocking.exceptions import NotOpenSessionError as NotOpenSessionError
    from .blocking.exceptions import PackageManagerError as PackageManagerError
    from .blocking.exceptions import PoolClosedError as PoolClosedError
    from .blocking.exceptions import PoolExhaustedError as PoolExhaustedError
    from .blocking.exceptions import PoolHealthCheckError as PoolHealthCheckError
    from .blocking.exceptions import ResourceError as ResourceError
    from .blocking.exceptions import SandboxTimeoutError as SandboxTimeoutError
    from .blocking.exceptions import SecurityError as SecurityError
    from .blocking.exceptions import SecurityViolationError as SecurityViolationError
    from .blocking.exceptions import SessionNotOpenError as SessionNotOpenError
    from .blocking.exceptions import UnsupportedBackendError as UnsupportedBackendError
    from .blocking.exceptions import ValidationError as ValidationError
    from .blocking.interactive import InteractiveOutput as InteractiveOutput
    from .blocking.interactive import InteractiveSandboxSession as InteractiveSandboxSession
    from .blocking.interactive import InteractiveSettings as InteractiveSettings
    from .blocking.interactive import KernelType as KernelType
    from .blocking.plots import ArtifactSandboxSession as ArtifactSandboxSession
    from .blocking.pools import ExhaustionStrategy as ExhaustionStrategy
    from .blocking.pools import PoolConfig as PoolConfig
    from .blocking.pools import PoolManager as PoolManager
    from .blocking.pools import create_pool_manager as create_pool_manager
    from .blocking.security import RestrictedModule as RestrictedModule
    from .blocking.security import SecurityIssueSeverity as SecurityIssueSeverity
    from .blocking.security import SecurityPattern as SecurityPattern
    from .blocking.security import SecurityPolicy as SecurityPolicy
    from .blocking.security import get_security_policy as get_security_policy
    from .blocking.security import validate_package_name as validate_package_name
    from .blocking.session import SandboxSession as SandboxSession
    from .blocking.session import create_session as create_session
    from .blocking.values import ConsoleOutput as ConsoleOutput
    from .blocking.values import ExecutionResult as ExecutionResult
    from .blocking.values import FileType as FileType
    from .blocking.values import PlotOutput as PlotOutput
    from .blocking.values import SandboxBackend as SandboxBackend
    from .blocking.values import StreamCallback as StreamCallback
    from .blocking.values import SupportedLanguage as SupportedLanguage
    from .errors import SandboxError as SandboxError
    from .profile import Profile as Profile
    from .profile import load_profile as load_profile
    from .results import Artifact as Artifact
    from .results import Execution as Execution
    from .sandboxes import Printed as Printed
    from .sandboxes import Sandboxes as Sandboxes
    from .sandboxes import Session as Session

__version__ = "0.1.0"

_MODULES = {
    "Artifact": "results",
    "ArtifactSandboxSession": "blocking.plots",
    "BackendCapabilities": "blocking.backends",
    "BackendDefinition": "blocking.backends",
    "CommandEmptyError": "blocking.exceptions",
    "CommandFailedError": "blocking.exceptions",
    "ConsoleOutput": "blocking.values",
    "ContainerError": "blocking.exceptions",
    "DuplicateClientError": "blocking.exceptions",
    "Execution": "results",
    "ExecutionResult": "blocking.values",
    "ExhaustionStrategy": "blocking.pools",
    "ExtraArgumentsError": "blocking.exceptions",
    "FileType": "blocking.values",
    "ImageNotFoundError": "blocking.exceptions",
    "ImagePullError": "blocking.exceptions",
    "InteractiveOutput": "blocking.interactive",
    "InteractiveSandboxSession": "blocking.interactive",
    "InteractiveSettings": "blocking.interactive",
    "InvalidRegexPatternError": "blocking.exceptions",
    "KernelType": "blocking.interactive",
    "LanguageNotSupportPlotError": "blocking.exceptions",
    "LanguageNotSupportedError": "blocking.exceptions",
    "LibraryInstallationNotSupportedError": "blocking.exceptions",
    "MissingDependencyError": "blocking.exceptions",
    "NotOpenSessionError": "blocking.exceptions",
    "PackageManagerError": "blocking.exceptions",
    "PlotOutput": "blocking.values",
    "PoolClosedError": "blocking.exceptions",
    "PoolConfig": "blocking.pools",
    "PoolExhaustedError": "blocking.exceptions",
    "PoolHealthCheckError": "blocking.exceptions",
    "PoolManager": "blocking.pools",
    "Printed": "sandboxes",
    "Profile": "profile",
    "ResourceError": "blocking.exceptions",
    "RestrictedModule": "blocking.security",
    "SandboxBackend": "blocking.values",
    "SandboxError": "errors",
    "SandboxSession": "blocking.session",
    "SandboxTimeoutError": "blocking.exceptions",
    "Sandboxes": "sandboxes",
    "SecurityError": "blocking.exceptions",
    "SecurityIssueSeverity": "blocking.security",
    "SecurityPattern": "blocking.security",
    "SecurityPolicy": "blocking.security",
    "SecurityViolationError": "blocking.exceptions",
    "Session": "sandboxes",
    "SessionNotOpenError": "blocking.exceptions",
    "StreamCallback": "blocking.values",
    "SupportedLanguage": "blocking.values",
    "UnsupportedBackendError": "blocking.exceptions",
    "ValidationError": "blocking.exceptions",
    "create_pool_manager": "blocking.pools",
    "create_session": "blocking.session",
    "get_backend": "blocking.backends",
    "get_security_policy": "blocking.security",
    "list_backends": "blocking.backends",
    "load_profile": "profile",
    "register_backend": "blocking.backends",
    "validate_package_name": "blocking.security",
}
"""The module of each public name; imported at the first use, since most commands need only a few of them."""

__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
