"""The sandboxes of this process: one set for each profile, so that a second session can use everything at once."""

from collections.abc import Sequence

from ..profile import Profile
from ..sandboxes import Sandboxes
from .kept import Kept
from .portal import Held, Portal, portal


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
