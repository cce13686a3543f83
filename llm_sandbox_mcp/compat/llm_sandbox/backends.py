"""The registry of backends by name; a program can add its own."""

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from .exceptions import UnsupportedBackendError, ValidationError
from .values import SandboxBackend

_NAME = re.compile(r"[a-z][a-z0-9_-]*")


@dataclass(frozen=True)
class BackendCapabilities:
    """What sessions of a backend can do; platforms are named as in `sys.platform`."""

    platforms: tuple[str, ...] = ()
    container_images: bool = False
    interactive: bool = False
    pooling: bool = False
    filesystem_isolation: bool = False
    network_isolation: bool = False
    seccomp: bool = False
    daemon_required: bool = False


@dataclass(frozen=True)
class BackendDefinition:
    """One backend: the factory of its sessions, and what they can do."""

    name: str
    factory: Callable[..., Any]
    capabilities: BackendCapabilities
    builtin: bool = False


def register_backend(
    name: str, factory: Callable[..., Any], *, capabilities: BackendCapabilities | None = None
) -> BackendDefinition:
    """Adds a backend: `SandboxSession(backend=name, ...)` then returns the factory's result for the other arguments.

    Raises `ValidationError` for a name that is already used or not valid.
    """
    if not callable(factory):
        raise ValidationError(f"the factory of backend {name} is not a function; give a function")
    if not isinstance(name, str) or not _NAME.fullmatch(name := name.lower()):
        raise ValidationError(
            f"{name!r} is not a valid name; use letters, digits, underscores and hyphens, starting with a letter"
        )
    with _lock:
        if name in _backends:
            raise ValidationError(f"backend {name} exists already; choose another name")
        _backends[name] = definition = BackendDefinition(name, factory, capabilities or BackendCapabilities())
    return definition


def get_backend(name: SandboxBackend | str) -> BackendDefinition:
    """The backend of that name; `UnsupportedBackendError` for an unknown name."""
    definition = _backends.get(str(name).lower())
    if definition is None:
        raise UnsupportedBackendError(f"unknown backend {name!r}; available: {', '.join(_backends)}")
    return definition


def list_backends() -> tuple[BackendDefinition, ...]:
    """All backends, those of programs last."""
    return tuple(_backends.values())


def _builtin(name: SandboxBackend) -> BackendDefinition:
    def make(**arguments: Any) -> Any:
        # Imported here, because the module of sessions imports this one.
        return import_module(".session", __package__).SandboxSession(backend=name, **arguments)

    engines = name in ("docker", "podman", "kubernetes", "micromamba")
    return BackendDefinition(
        name.value,
        make,
        BackendCapabilities(
            platforms=("linux",),
            container_images=engines,
            interactive=True,
            pooling=True,
            filesystem_isolation=True,
            network_isolation=True,
            seccomp=name != "kubernetes",  # there the node's own profile applies
            daemon_required=engines,
        ),
        builtin=True,
    )


_lock = threading.Lock()
_backends = {name.value: _builtin(name) for name in SandboxBackend}
