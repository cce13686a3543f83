"""The arguments of sessions and pools, and the profile that results from them: each has an effect, or is an error."""

import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self

from ...backends.layout import WORKDIR
from ...base.units import docker_size, parse_size
from ...languages.languages import included_languages
from ...profile.profile import Profile, load_profile
from ...sandboxes import named_profile
from . import clients, runtime_configs, security
from .exceptions import ExtraArgumentsError, ValidationError, translated
from .mounts import mounts
from .overlay import ENGINES, Overlay
from .registry import unknown_backend
from .security import SecurityPolicy
from .values import SandboxBackend, can_decode

_IMAGES = (*ENGINES, "kubernetes")
_MICROMAMBA = "mambaorg/micromamba:latest"
_DEFAULT_TIMEOUT = 60.0
_OF_A_PROCESS = frozenset(("environment", "env", "user", "working_dir", "stdin_open", "tty"))
"""Keys of `runtime_configs` that apply to a process and not to its container."""
_KINDS: tuple[tuple[str, Any, str], ...] = (
    ("image", str, "the name of an image"),
    ("dockerfile", str | os.PathLike, "a path"),
    ("container_id", str, "the name or id of a container"),
    ("kube_namespace", str, "the name of a namespace"),
    ("runtime_configs", Mapping, "a dict"),
    ("pod_manifest", Mapping, "a dict"),
    ("security_policy", SecurityPolicy, "a SecurityPolicy"),
)
"""The types of arguments that the profile does not check."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of a session. A `ValidationError` names the backend and the argument that it does not support."""

    backend: SandboxBackend | str = SandboxBackend.AUTO
    lang: str = "python"
    image: str | None = None
    dockerfile: str | os.PathLike[str] | None = None
    keep_template: bool = False
    """Images are kept in any case; those of a Dockerfile are built once."""
    commit_container: bool = False
    verbose: bool = False
    """Whether the package prints on standard error what it does."""
    runtime_configs: Mapping[str, Any] | None = None
    max_memory: str | None = None
    """For an interactive session, such as 1GB; it does not exceed what the profile of `LLM_SANDBOX_PROFILE` allows."""
    workdir: str = WORKDIR
    client: Any = None
    mounts: Sequence[Any] | None = None
    stream: bool = True
    """No effect: output always arrives as it appears, and callbacks see it."""
    security_policy: SecurityPolicy | None = None
    default_timeout: float | None = _DEFAULT_TIMEOUT
    """Seconds for a run without its own timeout, limited by the profile; None means the profile's limit."""
    execution_timeout: float | None = None
    session_timeout: float | None = None
    container_id: str | None = None
    skip_environment_setup: bool = False
    encoding_errors: str = "replace"
    """Error handler of `bytes.decode` for output that is not UTF-8; strict raises `UnicodeDecodeError`.

    Callbacks always see U+FFFD.
    """
    libraries: Sequence[str] | None = None
    kube_namespace: str | None = None
    env_vars: Mapping[str, str] | None = None
    pod_manifest: Mapping[str, Any] | None = None
    environment: str = "base"
    """The name of an environment of micromamba."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "lang", language_name(self.lang))
        try:
            object.__setattr__(self, "backend", SandboxBackend(self.backend))
        except ValueError:
            raise unknown_backend(self.backend) from None
        if not self.workdir or runtime_configs.is_workdir(self.workdir):
            object.__setattr__(self, "workdir", WORKDIR)
        check_libraries(self.libraries)
        for name, kind, what in _KINDS:
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise ValidationError(f"backend {self.backend}: {name}: {str(value)[:40]!r} is not {what}", "give one")
        if self.image is not None and self.dockerfile is not None:
            raise ValidationError("image and dockerfile are both given", "give only one of them")
        for name in ("default_timeout", "execution_timeout", "session_timeout"):
            check_seconds(name, getattr(self, name))

    @classmethod
    def of(cls, **arguments: Any) -> Self:
        """The options from a program's arguments."""
        cls.check_names(arguments)
        return cls(**arguments)

    @classmethod
    def check_names(cls, arguments: Mapping[str, Any]) -> None:
        """Raises `ExtraArgumentsError` for an unknown argument."""
        known = ["pool", *(field.name for field in fields(cls))]
        for name in arguments:
            if name not in known:
                near = " or ".join(get_close_matches(name, known))
                hint = f"leave it out, or give {near}" if near else f"available: {', '.join(known)}"
                backend = arguments.get("backend", SandboxBackend.AUTO)
                raise ExtraArgumentsError(f"backend {backend}: unknown argument {name!r}", hint)

    def profile(self, over: Mapping[str, Mapping[str, Any]] | None = None) -> Profile:
        """The profile that `LLM_SANDBOX_PROFILE` names, or `library`, changed by these arguments."""
        overlay = Overlay(self.engine, {name: dict(values) for name, values in (over or {}).items()})
        overlay.set("backend", "backend.name", overlay.backend)
        self._refuse(overlay)
        self._image(overlay)
        if self.max_memory:
            self._memory(overlay, self.max_memory)
        runtime_configs.apply(overlay, self.lang, runtime_configs.given(self.runtime_configs))
        if self.client is not None:
            clients.apply(overlay, self.client)
        if self.mounts is not None:
            mounts(overlay, "mounts", self.mounts)
        if self.env_vars is not None:
            overlay.environment("env_vars", self.lang, runtime_configs.variables(overlay, "env_vars", self.env_vars))
        if self.kube_namespace is not None:
            overlay.only("kube_namespace", "kubernetes")
            overlay.set("kube_namespace", "kubernetes.namespace", self.kube_namespace)
        if self.pod_manifest is not None:
            overlay.only("pod_manifest", "kubernetes")
            overlay.set("pod_manifest", "kubernetes.pod_manifest", dict(self.pod_manifest))
        if self.security_policy is not None:
            security.apply(overlay, self.security_policy)
        with translated():
            return overlay.profile(named_profile() or "library")

    def _memory(self, overlay: Overlay, wanted: str) -> None:
        size = docker_size(str(wanted))
        if size is None:
            raise overlay.refuse("max_memory", f"{str(wanted)[:40]!r} is not a size", "give one such as 512m or 1GB")
        named = named_profile()
        with translated():
            if named is None or load_profile(named).limits.memory > parse_size(size):
                overlay.set("max_memory", "limits.memory", size)

    @property
    def engine(self) -> str:
        """The backend by its name in a profile: the named one, or the one that other arguments need."""
        named = SandboxBackend(self.backend)
        if named is SandboxBackend.BUBBLEWRAP:
            return "embedded"
        if named is SandboxBackend.MICROMAMBA:
            return "docker"
        of_containers = [self.image, self.dockerfile, self.client, self.container_id, self.mounts]
        of_containers += map(runtime_configs.given(self.runtime_configs).get, runtime_configs.OF_CONTAINERS)
        if named is SandboxBackend.AUTO and any(value is not None for value in of_containers):
            package = clients.package_of(self.client)
            return package if package in ("podman", "kubernetes") else "docker"
        return named.value

    def _refuse(self, overlay: Overlay) -> None:
        if self.workdir != WORKDIR:
            raise overlay.refuse("workdir", f"code works in {WORKDIR}", f"leave it out, and name paths below {WORKDIR}")
        if self.commit_container:
            raise overlay.refuse(
                "commit_container", "no session changes an image when it ends", "call commit(image) to keep its state"
            )
        if not can_decode(self.encoding_errors):
            raise overlay.refuse(
                "encoding_errors",
                f"{self.encoding_errors!r} is not an error handler of decode",
                "give one such as strict or replace",
            )

    def _image(self, overlay: Overlay) -> None:
        section = "kubernetes" if overlay.backend == "kubernetes" else "containers"
        image = self.image
        if self.backend is SandboxBackend.MICROMAMBA:
            overlay.set("environment", f"{section}.prefix", ["micromamba", "run", "-n", self.environment])
            overlay.set("environment", f"{section}.environment", _micromamba_root(self.environment))
            image = image or (None if self.dockerfile else _MICROMAMBA)
        elif self.environment != "base":
            raise overlay.refuse("environment", "it is for micromamba", "leave it out, or name that backend")
        if image is not None:
            overlay.only("image", *_IMAGES)
            overlay.set("image", f"{section}.images", {self.lang: image})
            if overlay.backend in ENGINES:
                overlay.set("image", f"{section}.pull", "missing")
        if self.dockerfile is not None:
            overlay.only("dockerfile", *ENGINES)
            path = Path(self.dockerfile).resolve()
            if not path.is_file():
                raise overlay.refuse("dockerfile", f"there is no file {path}", "give the path of a Dockerfile")
            # Each text gets its own image.
            digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
            overlay.set("dockerfile", f"{section}.images", {self.lang: f"llm-sandbox-mcp-own-{self.lang}:{digest}"})
            overlay.set("dockerfile", f"{section}.dockerfiles", {self.lang: str(path)})
        if self.container_id is not None:
            self._join(overlay, section, self.container_id)

    def _join(self, overlay: Overlay, section: str, container: str) -> None:
        overlay.only("container_id", *_IMAGES)
        made_with = [name for name in ("image", "dockerfile", "mounts", "pod_manifest") if getattr(self, name)]
        configs = runtime_configs.given(self.runtime_configs)
        made_with += [runtime_configs.named(name) for name in configs if name not in _OF_A_PROCESS]
        for name in made_with:
            raise overlay.refuse(name, f"{container} of container_id is used as it is", "leave one of the two out")
        overlay.set("container_id", f"{section}.join", container)


def check_seconds(name: str, seconds: object) -> None:
    """Raises `ValidationError` for a value that is neither a time nor None."""
    if seconds is None or (isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0):
        return
    raise ValidationError(f"{name} is {str(seconds)[:40]}", "give seconds above zero, or None")


def check_libraries(libraries: Sequence[str] | None) -> None:
    """Raises `ValidationError` unless it is a list of names; the letters of a single text would be installed."""
    if isinstance(libraries, str):
        raise ValidationError("libraries is a text", f"give a list, such as [{libraries!r}]")
    if libraries is None:
        return
    a_list = isinstance(libraries, Collection) and not isinstance(libraries, Mapping)
    if not a_list or not all(isinstance(library, str) for library in libraries):
        raise ValidationError(f"libraries is {str(libraries)[:40]}", "give a list of names, such as ['requests']")


def language_name(name: str) -> str:
    """The proper name of a language, given in any case or as an alias; unknown names are reported at the first run."""
    known = included_languages().get(str(name))
    return known.name if known else str(name).strip().lower()


def _micromamba_root(environment: str) -> str:
    root = "/opt/conda"
    return root if environment == "base" else f"{root}/envs/{environment}"
