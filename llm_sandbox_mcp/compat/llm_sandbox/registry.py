"""Backends that programs add by name."""

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
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
        raise ValidationError(f"the factory of backend {name} is not a function", "give a function")
    if not isinstance(name, str) or not _NAME.fullmatch(name := name.lower()):
        raise ValidationError(
            f"{name!r} is not a valid name", "use letters, digits, underscores and hyphens, starting with a letter"
        )
    with _lock:
        if name in (*SandboxBackend, *_own):
            raise ValidationError(f"backend {name} exists already", "choose another name")
        _own[name] = definition = BackendDefinition(name, factory, capabilities or BackendCapabilities())
    return definition


def own_backend(name: object) -> BackendDefinition | None:
    """The backend of that name, if a program has added it."""
    return _own.get(str(name).lower())


def own_backends() -> tuple[BackendDefinition, ...]:
    """All backends that programs have added."""
    return tuple(_own.values())


def unknown_backend(name: object) -> UnsupportedBackendError:
    """The error for a name that no backend has."""
    return UnsupportedBackendError(f"unknown backend {name!r}", f"available: {', '.join((*SandboxBackend, *_own))}")


_lock = threading.Lock()
_own: dict[str, BackendDefinition] = {}
