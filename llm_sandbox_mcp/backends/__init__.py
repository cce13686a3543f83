"""Adapters to the engines that make sandboxes."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..profile import Profile
    from .base import Backend, Surroundings

BACKENDS = {"embedded": "llm_sandbox_mcp.backends.embedded.backend"}
"""Each backend's module, imported only when it is the one: it has a function `create(settings, surroundings)`."""


def open_backend(profile: "Profile", surroundings: "Surroundings") -> "Backend":
    """The backend that the profile names, to be entered as an async context manager."""
    module = importlib.import_module(BACKENDS[profile.backend.name])
    settings = getattr(profile, profile.backend.name).model_dump()
    backend: Backend = module.create(settings, surroundings)
    return backend
