"""Run code written by language models in isolated sandboxes: an async MCP server and a Python library."""

from importlib import import_module

TYPE_CHECKING = False  # the import of typing would take longer than all else here
if TYPE_CHECKING:
    from .base.errors import SandboxError as SandboxError
    from .base.results import Artifact as Artifact
    from .base.results import Execution as Execution
    from .compat.llm_sandbox.backends import get_backend as get_backend
    from .compat.llm_sandbox.backends import list_backends as list_backends
    from .compat.llm_sandbox.exceptions import CommandEmptyError as CommandEmptyError
    from .compat.llm_sandbox.exceptions import CommandFailedError as CommandFailedError
    from .compat.llm_sandbox.exceptions import ContainerError as ContainerError
    from .compat.llm_sandbox.exceptions import DuplicateClientError as DuplicateClientError
    from .compat.llm_sandbox.exceptions import ExtraArgumentsError as ExtraArgumentsError
    from .compat.llm_sandbox.exceptions import ImageNotFoundError as ImageNotFoundError
    from .compat.llm_sandbox.exceptions import ImagePullError as ImagePullError
    from .compat.llm_sandbox.exceptions import InvalidRegexPatternError as InvalidRegexPatternError
    from .compat.llm_sandbox.exceptions import LanguageNotSupportedError as LanguageNotSupportedError
    from .compat.llm_sandbox.exceptions import LanguageNotSupportPlotError as LanguageNotSupportPlotError
    from .compat.llm_sandbox.exceptions import (
        LibraryInstallationNotSupportedError as LibraryInstallationNotSupportedError,
    )
    from .compat.llm_sandbox.exceptions import MissingDependencyError as MissingDependencyError
    from .compat.llm_sandbox.exceptions import NotOpenSessionError as NotOpenSessionError
    from .compat.llm_sandbox.exceptions import PackageManagerError as PackageManagerError
    from .compat.llm_sandbox.exceptions import PoolClosedError as PoolClosedError
    from .compat.llm_sandbox.exceptions import PoolExhaustedError as PoolExhaustedError
    from .compat.llm_sandbox.exceptions import PoolHealthCheckError as PoolHealthCheckError
    from .compat.llm_sandbox.exceptions import ResourceError as ResourceError
    from .compat.llm_sandbox.exceptions import SandboxTimeoutError as SandboxTimeoutError
    from .compat.llm_sandbox.exceptions import SecurityError as SecurityError
    from .compat.llm_sandbox.exceptions import SecurityViolationError as SecurityViolationError
    from .compat.llm_sandbox.exceptions import SessionNotOpenError as SessionNotOpenError
    from .compat.llm_sandbox.exceptions import UnsupportedBackendError as UnsupportedBackendError
    from .compat.llm_sandbox.exceptions import ValidationError as ValidationError
    from .compat.llm_sandbox.interactive import InteractiveOutput as InteractiveOutput
    from .compat.llm_sandbox.interactive import InteractiveSandboxSession as InteractiveSandboxSession
    from .compat.llm_sandbox.interactive import InteractiveSettings as InteractiveSettings
    from .compat.llm_sandbox.interactive import KernelType as KernelType
    from .compat.llm_sandbox.plots import ArtifactSandboxSession as ArtifactSandboxSession
    from .compat.llm_sandbox.pools import ExhaustionStrategy as ExhaustionStrategy
    from .compat.llm_sandbox.pools import PoolConfig as PoolConfig
    from .compat.llm_sandbox.pools import PoolManager as PoolManager
    from .compat.llm_sandbox.pools import create_pool_manager as create_pool_manager
    from .compat.llm_sandbox.registry import BackendCapabilities as BackendCapabilities
    from .compat.llm_sandbox.registry import BackendDefinition as BackendDefinition
    from .compat.llm_sandbox.registry import register_backend as register_backend
    from .compat.llm_sandbox.security import RestrictedModule as RestrictedModule
    from .compat.llm_sandbox.security import SecurityIssueSeverity as SecurityIssueSeverity
    from .compat.llm_sandbox.security import SecurityPattern as SecurityPattern
    from .compat.llm_sandbox.security import SecurityPolicy as SecurityPolicy
    from .compat.llm_sandbox.security import get_security_policy as get_security_policy
    from .compat.llm_sandbox.security import validate_package_name as validate_package_name
    from .compat.llm_sandbox.session import SandboxSession as SandboxSession
    from .compat.llm_sandbox.session import create_session as create_session
    from .compat.llm_sandbox.values import ConsoleOutput as ConsoleOutput
    from .compat.llm_sandbox.values import ExecutionResult as ExecutionResult
    from .compat.llm_sandbox.values import FileType as FileType
    from .compat.llm_sandbox.values import PlotOutput as PlotOutput
    from .compat.llm_sandbox.values import SandboxBackend as SandboxBackend
    from .compat.llm_sandbox.values import StreamCallback as StreamCallback
    from .compat.llm_sandbox.values import SupportedLanguage as SupportedLanguage
    from .profile.profile import Profile as Profile
    from .profile.profile import load_profile as load_profile
    from .sandboxes import Printed as Printed
    from .sandboxes import Sandboxes as Sandboxes
    from .sandboxes import Session as Session

__version__ = "0.1.0"

_MODULES = {
    "Artifact": "base.results",
    "ArtifactSandboxSession": "compat.llm_sandbox.plots",
    "BackendCapabilities": "compat.llm_sandbox.registry",
    "BackendDefinition": "compat.llm_sandbox.registry",
    "CommandEmptyError": "compat.llm_sandbox.exceptions",
    "CommandFailedError": "compat.llm_sandbox.exceptions",
    "ConsoleOutput": "compat.llm_sandbox.values",
    "ContainerError": "compat.llm_sandbox.exceptions",
    "DuplicateClientError": "compat.llm_sandbox.exceptions",
    "Execution": "base.results",
    "ExecutionResult": "compat.llm_sandbox.values",
    "ExhaustionStrategy": "compat.llm_sandbox.pools",
    "ExtraArgumentsError": "compat.llm_sandbox.exceptions",
    "FileType": "compat.llm_sandbox.values",
    "ImageNotFoundError": "compat.llm_sandbox.exceptions",
    "ImagePullError": "compat.llm_sandbox.exceptions",
    "InteractiveOutput": "compat.llm_sandbox.interactive",
    "InteractiveSandboxSession": "compat.llm_sandbox.interactive",
    "InteractiveSettings": "compat.llm_sandbox.interactive",
    "InvalidRegexPatternError": "compat.llm_sandbox.exceptions",
    "KernelType": "compat.llm_sandbox.interactive",
    "LanguageNotSupportPlotError": "compat.llm_sandbox.exceptions",
    "LanguageNotSupportedError": "compat.llm_sandbox.exceptions",
    "LibraryInstallationNotSupportedError": "compat.llm_sandbox.exceptions",
    "MissingDependencyError": "compat.llm_sandbox.exceptions",
    "NotOpenSessionError": "compat.llm_sandbox.exceptions",
    "PackageManagerError": "compat.llm_sandbox.exceptions",
    "PlotOutput": "compat.llm_sandbox.values",
    "PoolClosedError": "compat.llm_sandbox.exceptions",
    "PoolConfig": "compat.llm_sandbox.pools",
    "PoolExhaustedError": "compat.llm_sandbox.exceptions",
    "PoolHealthCheckError": "compat.llm_sandbox.exceptions",
    "PoolManager": "compat.llm_sandbox.pools",
    "Printed": "sandboxes",
    "Profile": "profile.profile",
    "ResourceError": "compat.llm_sandbox.exceptions",
    "RestrictedModule": "compat.llm_sandbox.security",
    "SandboxBackend": "compat.llm_sandbox.values",
    "SandboxError": "base.errors",
    "SandboxSession": "compat.llm_sandbox.session",
    "SandboxTimeoutError": "compat.llm_sandbox.exceptions",
    "Sandboxes": "sandboxes",
    "SecurityError": "compat.llm_sandbox.exceptions",
    "SecurityIssueSeverity": "compat.llm_sandbox.security",
    "SecurityPattern": "compat.llm_sandbox.security",
    "SecurityPolicy": "compat.llm_sandbox.security",
    "SecurityViolationError": "compat.llm_sandbox.exceptions",
    "Session": "sandboxes",
    "SessionNotOpenError": "compat.llm_sandbox.exceptions",
    "StreamCallback": "compat.llm_sandbox.values",
    "SupportedLanguage": "compat.llm_sandbox.values",
    "UnsupportedBackendError": "compat.llm_sandbox.exceptions",
    "ValidationError": "compat.llm_sandbox.exceptions",
    "create_pool_manager": "compat.llm_sandbox.pools",
    "create_session": "compat.llm_sandbox.session",
    "get_backend": "compat.llm_sandbox.backends",
    "get_security_policy": "compat.llm_sandbox.security",
    "list_backends": "compat.llm_sandbox.backends",
    "load_profile": "profile.profile",
    "register_backend": "compat.llm_sandbox.registry",
    "validate_package_name": "compat.llm_sandbox.security",
}
"""The module of each public name; imported at the first use, since most commands need only a few of them."""

__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
