"""Things that are opened for the first session that needs them, and kept until the process ends."""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from .portal import Held

T = TypeVar("T")


@dataclass
class _Opened(Generic[T]):
    lock: threading.Lock = field(default_factory=threading.Lock)
    held: Held[T] | None = None


class Kept(Generic[T]):
    """One thing for each name, in this process and its current event loop."""

    def __init__(self) -> None:
        self._opened: dict[str, _Opened[T]] = {}
        # A forked child inherits the locks in their state, perhaps locked by a thread that the child does not have.
        os.register_at_fork(after_in_child=self._opened.clear)

    def get(self, name: str, enter: Callable[[], Held[T]]) -> T:
        """The thing of that name, entered now if needed. Raises the errors of entering it."""
        opened = self._opened.setdefault(name, _Opened())
        with opened.lock:
            if opened.held is None or not opened.held.here:
                opened.held = enter()
            return opened.held.value
