"""Pools of warm sandboxes for sessions of many threads. Each sandbox serves one session and is then destroyed."""

import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

from ...sandboxes import Sandboxes
from .exceptions import DuplicateClientError, PoolClosedError, ValidationError, translated
from .model import Model
from .opened import open_sandboxes
from .options import Options, check_libraries, check_seconds
from .portal import Held, portal
from .session import SandboxSession
from .values import SandboxBackend

_TIMES = ("default_timeout", "execution_timeout", "session_timeout")
_NEVER = 365 * 86400.0
_OF_A_SESSION = frozenset(
    {
        *(*_TIMES, "lang", "verbose", "stream", "encoding_errors"),
        *("libraries", "skip_environment_setup", "keep_template"),
    }
)
"""The arguments that can differ between sessions of one pool."""


class ExhaustionStrategy(StrEnum):
    """What a session gets when all sandboxes of a pool are in use."""

    WAIT = "wait"
    FAIL_FAST = "fail_fast"
    TEMPORARY = "temporary"
    """A sandbox beyond the pool's size."""


@dataclass(frozen=True, kw_only=True)
class PoolConfig(Model):
    """How many sandboxes a pool has, and how long they wait; times are in seconds."""

    max_pool_size: int = 10
    min_pool_size: int = 0
    idle_timeout: float | None = 300.0
    acquisition_timeout: float | None = 30.0
    health_check_interval: float = 60.0
    max_container_lifetime: float | None = 3600.0
    max_container_uses: int | None = None
    """No effect: a sandbox is never used twice."""
    exhaustion_strategy: ExhaustionStrategy | str = ExhaustionStrategy.WAIT
    enable_prewarming: bool = True
    """Whether `min_pool_size` sandboxes are made in advance."""

    def __post_init__(self) -> None:
        for name in ("min_pool_size", "max_pool_size", "max_container_uses"):
            number = getattr(self, name)
            if not isinstance(number, int) and (number, name) != (None, "max_container_uses"):
                raise ValidationError(f"{name} is {str(number)[:40]}", "give a whole number")
        if not 0 <= self.min_pool_size <= self.max_pool_size or self.max_pool_size < 1:
            raise ValidationError(
                f"min_pool_size is {self.min_pool_size} and max_pool_size is {self.max_pool_size}",
                "give a minimum from 0 to the maximum, and a maximum of at least 1",
            )
        if self.max_container_uses is not None and self.max_container_uses < 1:
            raise ValidationError(f"max_container_uses is {self.max_container_uses}", "give at least 1, or None")
        for name in ("idle_timeout", "acquisition_timeout", "health_check_interval", "max_container_lifetime"):
            check_seconds(name, getattr(self, name))
        if self.health_check_interval is None:
            raise ValidationError("health_check_interval is None", "give seconds above zero")
        if self.exhaustion_strategy not in list(ExhaustionStrategy):
            raise ValidationError(
                f"unknown exhaustion_strategy {self.exhaustion_strategy!r}",
                f"available: {', '.join(ExhaustionStrategy)}",
            )

    def section(self, language: str) -> Mapping[str, Any]:
        """The `[pool]` table of a profile."""
        return {
            "languages": [language],
            "min": self.min_pool_size if self.enable_prewarming else 0,
            "max": self.max_pool_size,
            "idle_timeout": _time(self.idle_timeout),
            "lifetime": _time(self.max_container_lifetime),
            "health_interval": _time(self.health_check_interval),
            "exhaustion": str(self.exhaustion_strategy),
            "acquire_timeout": _time(self.acquisition_timeout),
        }


class PoolManager:
    """One pool, for any number of sessions and threads: `SandboxSession(pool=...)`. Made by `create_pool_manager`."""

    def __init__(self, config: PoolConfig, options: Options, libraries: Sequence[str]) -> None:
        self.config = config
        self._options = options
        check_libraries(libraries)
        section = {**config.section(options.lang), "libraries": {options.lang: list(libraries)} if libraries else {}}
        self._lock = threading.Lock()
        with translated():
            held = open_sandboxes(portal, options.profile({"pool": section}), (options.lang,))
        self._held: Held[Sandboxes] | None = held
        # If the pool is garbage-collected without `close`, its sandboxes end before the end of the process.
        self._given_up = weakref.finalize(self, held.let_go)
        self._given_up.atexit = False

    @property
    def lang(self) -> str:
        """The language of its sandboxes."""
        return self._options.lang

    @property
    def image(self) -> str | None:
        """The image that the pool was created with."""
        return self._options.image

    @property
    def client(self) -> Any:
        """The client that the pool was created with."""
        return self._options.client

    @property
    def sandboxes(self) -> Sandboxes:
        """The `Sandboxes` that make its sandboxes; `PoolClosedError` once the pool is closed."""
        held = self._held
        if held is None or not held.here:
            raise PoolClosedError("the pool is closed, or belongs to another process")
        return held.value

    def options_of(self, arguments: Mapping[str, Any]) -> Options:
        """The options of a session: the pool's options, changed by arguments that can differ between sessions."""
        Options.check_names(arguments)
        given = {name: value for name, value in arguments.items() if value is not None or name in _TIMES}
        wanted = Options(backend=given.pop("backend", SandboxBackend.AUTO)).engine
        if wanted not in ("auto", self._options.engine):
            raise ValidationError(f"backend: the pool is for {self._options.engine}", f"create another for {wanted}")
        for name, value in given.items():
            if name not in _OF_A_SESSION and value != getattr(self._options, name, None):
                kind = DuplicateClientError if name == "client" else ValidationError
                raise kind(f"{name}: the sandboxes of a pool exist already", "give it to create_pool_manager")
        options = replace(self._options, **{name: value for name, value in given.items() if name in _OF_A_SESSION})
        if options.lang != self._options.lang:
            raise ValidationError(f"lang: the pool is for {self._options.lang}", f"create another for {options.lang}")
        return options

    def acquire(self) -> SandboxSession:
        """An open session in one of its sandboxes. Raises `PoolExhaustedError` if none is available in time."""
        session = SandboxSession(pool=self)
        session.open()
        return session

    def release(self, session: SandboxSession) -> None:
        """Closes a session; a new sandbox replaces its sandbox."""
        session.close()

    def get_stats(self) -> dict[str, Any]:
        """The number of sandboxes in each state."""
        closed = self._held is None or not self._held.here
        # A sandbox that does not answer is not kept, so "unhealthy" is always 0.
        counts = {"initializing": 0, "idle": 0, "busy": 0, "unhealthy": 0, "removing": 0}
        if not closed:
            now = portal.ask(self.sandboxes.pool)
            counts |= {"initializing": now.warming, "idle": now.warm, "busy": now.leased, "removing": now.closing}
        return {
            "total_size": sum(counts.values()),
            "max_size": self.config.max_pool_size,
            "min_size": self.config.min_pool_size,
            "state_counts": counts,
            "closed": closed,
        }

    def close(self) -> None:
        """Destroys all of its sandboxes, also those in use."""
        with self._lock:
            held, self._held = self._held, None
        if held is not None:
            self._given_up.detach()
            held.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def create_pool_manager(
    client: Any = None,
    backend: SandboxBackend | str = SandboxBackend.AUTO,
    config: PoolConfig | None = None,
    lang: str = "python",
    libraries: Sequence[str] | None = None,
    **arguments: Any,
) -> PoolManager:
    """A pool of sandboxes; `libraries` are installed in advance, the other arguments are those of sessions."""
    namespace = arguments.pop("namespace", None)
    if namespace is not None:
        arguments["kube_namespace"] = namespace
    options = Options.of(client=client, backend=backend, lang=lang, **arguments)
    return PoolManager(PoolConfig.model_validate(config or PoolConfig()), options, libraries or ())


def _time(seconds: float | None) -> str:
    """A time as in a profile, to the microsecond; None becomes a year."""
    return f"{min(max(_NEVER if seconds is None else seconds, 1e-6), _NEVER):f}s"
