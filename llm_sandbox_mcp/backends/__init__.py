"""Adapters to the engines that make sandboxes, one module each; backends of other packages are entry points."""

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ..base.errors import MissingPackage, ProfileError
from ..base.similar import available
from ..base.text import one_line

if TYPE_CHECKING:
    from .base import Backend, Surroundings
    from .settings import Settings

BACKENDS = {
    "embedded": "llm_sandbox_mcp.backends.embedded",
    "docker": "llm_sandbox_mcp.backends.docker",
    "podman": "llm_sandbox_mcp.backends.podman",
    "kubernetes": "llm_sandbox_mcp.backends.kubernetes",
}
"""The included backends, each with its module."""

GROUP = "llm_sandbox_mcp.backends"
"""The entry point group for backends of other packages: each entry point has a name and a module as above."""

AUTO = "auto"
_CANDIDATES = ("embedded", "docker", "podman")
"""`auto` uses the first of these backends that works."""


class Engine(Protocol):
    """What the module of a backend defines. It is imported only if the profile names it; importing it must be cheap."""

    @property
    def Settings(self) -> "type[Settings]":  # noqa: N802 - it is a class
        """The part of the profile that the backend reads."""

    def create(self, settings: Any, surroundings: "Surroundings") -> "Backend":
        """Creates the backend from its own settings and imports the packages it needs; does not call the engine yet."""


def candidates(name: str) -> tuple[str, ...]:
    """The backends that a name can resolve to: the named one, or for `auto` all that are tried."""
    return _CANDIDATES if name == AUTO else (name,)


def engine(name: str) -> Engine:
    """The module of a backend; `ProfileError` if no backend has this name or a package that it needs is missing."""
    with _packages(name):
        if name in BACKENDS:
            return importlib.import_module(BACKENDS[name])
        return _outside(name)


def _outside(name: str) -> Engine:
    """The module of another package's backend."""
    import importlib.metadata  # it takes longer than all else here, which the launcher imports too

    from .settings import Settings

    outside = importlib.metadata.entry_points(group=GROUP)
    if name not in outside.names:
        known = (AUTO, *BACKENDS, *sorted(outside.names))
        raise ProfileError(f"unknown backend {name!r}", available(name, known))
    try:
        module: Engine = outside[name].load()
    except ModuleNotFoundError:
        raise
    except Exception as error:
        reason = one_line(f"{type(error).__name__}: {error}")
        raise ProfileError(f"{outside[name].value} cannot be imported: {reason}", "update its package") from error
    settings, create = getattr(module, "Settings", None), getattr(module, "create", None)
    if not (isinstance(settings, type) and issubclass(settings, Settings) and callable(create)):
        raise ProfileError(f"{outside[name].value} has no valid Settings or create", "update its package")
    return module


def create(name: str, settings: Mapping[str, "Settings"], surroundings: "Surroundings") -> "Backend":
    """The backend of this name, or the one that chooses, from the settings of each candidate; it is not open yet."""
    makers = {one: partial(_create, one, settings[one], surroundings) for one in candidates(name)}
    if name != AUTO:
        return makers[name]()
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
        raise MissingPackage(f"{name} needs the package {error.name}", f"run: {step}", key="backend.name") from error
