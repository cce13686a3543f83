"""Run code written by language models in isolated sandboxes: an async MCP server and a Python library."""

from importlib import import_module

TYPE_CHECKING = False  # the import of typing would take longer than all else here
if TYPE_CHECKING:
    from .base.errors import SandboxError as SandboxError
    from .base.results import Artifact as Artifact
    from .base.results import Execution as Execution
    from .compat.llm_sandbox import *  # noqa: F403 - exactly its names
    from .profile.profile import Profile as Profile
    from .profile.profile import load_profile as load_profile
    from .sandboxes import Printed as Printed
    from .sandboxes import Sandboxes as Sandboxes
    from .sandboxes import Session as Session

__version__ = "0.1.0"

_MODULES = {
    "Artifact": "base.results",
    "Execution": "base.results",
    "Printed": "sandboxes",
    "Profile": "profile.profile",
    "SandboxError": "base.errors",
    "Sandboxes": "sandboxes",
    "Session": "sandboxes",
    "load_profile": "profile.profile",
}
"""The module of each public name; imported at the first use, since most commands need only a few of them."""

__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    theirs = import_module(".compat.llm_sandbox", __name__)
    if name in theirs.__all__:  # a program that moves over from LLM Sandbox only changes the name of the package
        return getattr(theirs, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
