"""Adapters to the engines that make sandboxes, a module for each; those of other packages are found by entry point."""

import importlib
import importlib.metadata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import MissingPackage, ProfileError
from ..escaping import one_line

if TYPE_CHECKING:
    from ..profile import Profile
    from .base import Backend, Surroundings
    from .settings import Settings

BACKENDS = {
    "embedded": "llm_sandbox_mcp.backends.embedded",
    "docker": "llm_sandbox_mcp.backends.docker",
    "podman": "llm_sandbox_mcp.backends.podman",
    "kubernetes": "llm_sandbox_mcp.backends.kubernetes",
}
"""Those that come along, each with its module."""

GROUP = "llm_sandbox_mcp.backends"
"""The entry points of other packages' backends: their names, and modules as those above."""

AUTO = "auto"
_CANDIDATES = ("embedded", "docker", "podman")
"""`auto` takes the first of them that works."""


class Engine(Protocol):
    """What the module of a backend has; imported where the profile names it, and to be cheap to import."""

    @property
    def Settings(self) -> "type[Settings]":  # noqa: N802 - it is a class
        """What the backend reads of the profile."""

    def create(self, settings: Any, surroundings: "Surroundings") -> "Backend":
        """Makes the backend of its own settings, with the packages that it needs; no engine is asked anything yet."""


def candidates(name: str) -> tuple[str, ...]:
    """The backends that one of this name comes to: itself, or those that are looked at."""
    return _CANDIDATES if name == AUTO else (name,)


def engine(name: str) -> Engine:
    """The module of a backend; `ProfileError` for a name that none has, or where it lacks a package."""
    with _packages(name):
        if name in BACKENDS:
            return importlib.import_module(BACKENDS[name])
        return _outside(name)


def _outside(name: str) -> Engine:
    """The module of another package's backend."""
    from .settings import Settings

    outside = importlib.metadata.entry_points(group=GROUP)
    if name not in outside.names:
        known = ", ".join((AUTO, *BACKENDS, *sorted(outside.names)))
        raise ProfileError(f"no such backend: {name!r}; there are: {known}")
    try:
        module: Engine = outside[name].load()
    except ModuleNotFoundError:
        raise
    except Exception as error:
        said = one_line(f"{type(error).__name__}: {error}")
        raise ProfileError(f"{outside[name].value} cannot be imported: {said}; update its package") from error
    settings, create = getattr(module, "Settings", None), getattr(module, "create", None)
    if not (isinstance(settings, type) and issubclass(settings, Settings) and callable(create)):
        raise ProfileError(f"{outside[name].value} lacks Settings or create; update its package")
    return module


def open_backend(profile: "Profile", surroundings: "Surroundings") -> "Backend":
    """The backend that the profile names, to be entered as an async context manager."""
    libraries = {name: section.libraries for name, section in profile.languages.items()}
    surroundings = replace(
        surroundings,
        libraries=libraries,
        open_network=profile.network.mode == "open",
        policy=profile.policy(),
        require_limits=profile.backend.require_limits,
    )
    makers = {name: partial(_create, name, settings, surroundings) for name, settings in profile.engines.items()}
    if profile.backend.name != AUTO:
        return makers[profile.backend.name]()
    from .choosing import Chosen

    return Chosen(makers, prefer=_CANDIDATES[0])


def _create(name: str, settings: "Settings", surroundings: "Surroundings") -> "Backend":
    with _packages(name):
        return engine(name).create(settings, surroundings)


@contextmanager
def _packages(name: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        step = f"pip install 'llm-sandbox-mcp[{name}]'" if name in BACKENDS else f"pip install {error.name}"
        raise MissingPackage(f"backend.name: {name} needs the package {error.name}: {step}") from error
