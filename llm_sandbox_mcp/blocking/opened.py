"""The sandboxes of this process: opened with the first session that needs them, one set for each profile."""

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..profile import Profile
from ..sandboxes import Sandboxes
from .portal import Held, Portal, portal


@dataclass
class _Opened:
    lock: threading.Lock = field(default_factory=threading.Lock)
    generation: int = -1
    held: Held[Sandboxes] | None = None


class Shelf:
    """One set of sandboxes for each profile, kept until the process ends: a second session finds all that it needs."""

    def __init__(self, portal: Portal) -> None:
        self._portal = portal
        self._opened: dict[str, _Opened] = {}
        # A child has the locks as they were, perhaps held by a thread that it does not have.
        os.register_at_fork(after_in_child=self._opened.clear)

    def get(self, profile: Profile) -> Sandboxes:
        """The sandboxes of a profile. Raises what opening them does."""
        opened = self._opened.setdefault(profile.model_dump_json(), _Opened())
        with opened.lock:
            if opened.held is None or opened.generation != self._portal.generation:
                opened.held = open_sandboxes(self._portal, profile)
                opened.generation = self._portal.generation
            return opened.held.value


def open_sandboxes(portal: Portal, profile: Profile, languages: Sequence[str] = ()) -> Held[Sandboxes]:
    """Opens what sandboxes are made with; some of them wait for these languages, and for each that is used."""
    held = portal.enter(Sandboxes(profile))
    portal.begin(held.value.warm, languages)
    return held


shelf = Shelf(portal)
"""The one of this process."""
