"""The lifetime of a blocking session: its sandbox is made, belongs to this process only, and is destroyed."""

import logging
import threading
import time
import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from ...sandboxes import Sandboxes
from .exceptions import NotOpenSessionError, SandboxTimeoutError, ValidationError, translated
from .opened import shelf
from .options import Options
from .portal import Held, portal
from .running import CellSession, be_verbose, living
from .values import SandboxBackend

_log = logging.getLogger(__name__)


class Pool(Protocol):
    """What a session needs of a `PoolManager`."""

    @property
    def sandboxes(self) -> Sandboxes: ...
    def options_of(self, arguments: Mapping[str, Any]) -> Options: ...


class Lifetime:
    """A sandbox from `open` to `close`, for any number of threads; garbage collection closes it in the background."""

    def __init__(
        self,
        backend: SandboxBackend | str = SandboxBackend.AUTO,
        pool: Pool | None = None,
        **arguments: Any,
    ) -> None:
        arguments["backend"] = backend
        self.options = pool.options_of(arguments) if pool is not None else Options.of(**arguments)
        self._pool = pool
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        """Covers a run and the change of interpreters after it, so that another thread's run gets the new one."""
        self._in_callback: set[int] = set()
        """The ids of threads that are in a callback of a run."""
        self._held: Held[CellSession] | None = None
        self._until = float("inf")
        self._id: str | None = None
        self._made_with: Sandboxes | None = None
        """The `Sandboxes` that made its sandbox; their rules apply as long as the session is open."""
        if self.options.verbose:
            be_verbose()

    @property
    def container_id(self) -> str | None:
        """What names its sandbox, also once it is closed: the container that was given, else the id of the session."""
        return self.options.container_id or self._id

    @property
    def is_open(self) -> bool:
        """Whether it has a sandbox."""
        held = self._held
        return held is not None and held.here and time.monotonic() < self._until

    def open(self) -> None:
        """Makes the sandbox, and installs the requested libraries. Does nothing if it is open already."""
        if not self.is_open:
            self.close()  # the remains of a sandbox that expired, or of another process
        with self._lock, translated():
            if self._held is not None:
                return
            lifetime = self.options.session_timeout
            sandboxes = self._sandboxes()
            backend = sandboxes.service.profile.backend.name
            self._log_verbose("opening a session in %s on %s", self.options.lang, backend)
            held = portal.enter(living(sandboxes, self.options.lang, lifetime))
            self._until = time.monotonic() + (lifetime or float("inf"))
            # If the session is garbage-collected without `close`, its sandbox ends before the end of the process.
            self._given_up = weakref.finalize(self, held.let_go)
            self._given_up.atexit = False
            self._held, self._made_with, self._id = held, sandboxes, held.value.id
        try:
            with translated():
                self._begin(held.value)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Destroys the sandbox and stops what runs in it. Does nothing if it is closed already."""
        with self._lock:
            held, self._held, self._made_with = self._held, None, None
        if held is not None:
            self._log_verbose("closing the session")
            self._given_up.detach()
            with translated():
                held.leave()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _sandboxes(self) -> Sandboxes:
        if self._pool is not None:
            return self._pool.sandboxes
        return self._made_with or shelf.get(self.options.profile())

    @property
    def _longest(self) -> float:
        """Seconds that the profile allows for a run."""
        return self._sandboxes().service.profile.limits.timeout

    def _begin(self, session: CellSession) -> None:
        """Prepares a new sandbox before its first run."""
        portal.call(session.refresh)

    def _log_verbose(self, message: str, *values: object) -> None:
        if self.options.verbose:
            _log.info(message, *values)

    def _opened(self) -> CellSession:
        if time.monotonic() >= self._until:
            raise SandboxTimeoutError(
                f"the session ended after {self.options.session_timeout:g} s",
                self.options.session_timeout,
                step="open a new one",
            )
        held = self._held
        if held is None or not self.is_open:
            raise NotOpenSessionError
        return held.value

    def _free(self) -> CellSession:
        """The session; `ValidationError` in a callback, because a call there would deadlock with the run."""
        if threading.get_ident() in self._in_callback:
            raise ValidationError("a callback cannot use the session that calls it", "use the session after the run")
        return self._opened()
