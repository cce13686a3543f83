"""The sandboxes of this process: one set for each profile, so that a second session can use everything at once."""

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ...profile.profile import Profile
from ...sandboxes import Sandboxes
from .portal import Held, Portal, portal

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


class Shelf:
    """One set of sandboxes for each profile, kept until the process ends."""

    def __init__(self, portal: Portal) -> None:
        self._portal = portal
        self._kept = Kept[Sandboxes]()

    def get(self, profile: Profile) -> Sandboxes:
        """The sandboxes of a profile. Raises the errors of opening them."""
        return self._kept.get(profile.model_dump_json(), lambda: open_sandboxes(self._portal, profile))


def open_sandboxes(portal: Portal, profile: Profile, languages: Sequence[str] = ()) -> Held[Sandboxes]:
    """Opens `Sandboxes` and starts to warm sandboxes, for these languages and for each language that is used."""
    held = portal.enter(Sandboxes(profile))
    portal.begin(held.value.warm, languages)
    return held


shelf = Shelf(portal)
"""The shelf of this process."""
