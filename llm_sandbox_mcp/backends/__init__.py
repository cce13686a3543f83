"""Adapters to the engines that make sandboxes."""

import importlib
from functools import partial
from typing import TYPE_CHECKING

from ..errors import MissingPackage

if TYPE_CHECKING:
    from ..profile import Profile
    from .base import Backend, Surroundings

BACKENDS = {
    "embedded": "llm_sandbox_mcp.backends.embedded.backend",
    "docker": "llm_sandbox_mcp.backends.docker",
    "podman": "llm_sandbox_mcp.backends.podman",
    "kubernetes": "llm_sandbox_mcp.backends.kubernetes.backend",
}
"""Each backend's module, imported only when it is the one: it has a function `create(settings, surroundings)`."""

_AUTO = ("embedded", "docker", "podman")
"""`auto` takes the first of them that works."""

_SECTIONS = {"docker": ("containers", "docker"), "podman": ("containers", "podman")}
"""The sections of the profile that make up the settings of a backend, where that is not the one of its name."""


def open_backend(profile: "Profile", surroundings: "Surroundings") -> "Backend":
    """The backend that the profile names, to be entered as an async context manager."""
    if profile.backend.name in BACKENDS:
        return _create(profile.backend.name, profile, surroundings)
    from .choosing import Chosen

    return Chosen({name: partial(_create, name, profile, surroundings) for name in _AUTO}, prefer=_AUTO[0])


def _create(name: str, profile: "Profile", surroundings: "Surroundings") -> "Backend":
    settings: dict[str, object] = {}
    for section in _SECTIONS.get(name, (name,)):
        settings |= getattr(profile, section).model_dump()
    settings["libraries"] = {language: section.libraries for language, section in profile.languages.items()}
    settings["open_network"] = profile.network.mode == "open"
    try:
        module = importlib.import_module(BACKENDS[name])
    except ModuleNotFoundError as error:
        raise MissingPackage(
            f"backend.name: {name} needs the package {error.name}: pip install 'llm-sandbox-mcp[{name}]'"
        ) from error
    backend: Backend = module.create(settings, surroundings)
    return backend
