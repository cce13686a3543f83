"""All backends by name: the included ones, and those that programs have added."""

from functools import partial

from .registry import BackendCapabilities, BackendDefinition, own_backends, unknown_backend
from .session import SandboxSession
from .values import SandboxBackend


def get_backend(name: SandboxBackend | str) -> BackendDefinition:
    """The backend of that name; `UnsupportedBackendError` for an unknown name."""
    known = {definition.name: definition for definition in list_backends()}
    if (definition := known.get(str(name).lower())) is None:
        raise unknown_backend(name)
    return definition


def list_backends() -> tuple[BackendDefinition, ...]:
    """All backends, those of programs last."""
    return (*_INCLUDED, *own_backends())


def _included(name: SandboxBackend) -> BackendDefinition:
    engines = name in ("docker", "podman", "kubernetes", "micromamba")
    capabilities = BackendCapabilities(
        platforms=("linux",),
        container_images=engines,
        interactive=True,
        pooling=True,
        filesystem_isolation=True,
        network_isolation=True,
        seccomp=name != "kubernetes",  # there the node's own profile applies
        daemon_required=engines,
    )
    return BackendDefinition(name.value, partial(SandboxSession, backend=name), capabilities, builtin=True)


_INCLUDED = tuple(map(_included, SandboxBackend))
