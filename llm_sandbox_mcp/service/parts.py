"""The parts of one server, which its use cases share."""

from dataclasses import dataclass

from anyio.abc import TaskGroup

from ..backends.base import Backend
from ..files.artifacts import ArtifactStore
from ..files.watching import WatchedFolders
from ..host.audit import Audit
from ..languages.languages import Languages
from ..libraries.installing import Installer
from ..libraries.prepared.preparing import Preparer
from ..pool.pool import Pool
from ..profile.profile import Profile
from ..rules.checking import Checker
from ..sessions.live import LiveSessions
from ..state.kept import KeptSessions
from ..state.saved import SavedSessions


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What `wiring.open_service` connects."""

    profile: Profile
    languages: Languages
    backend: Backend
    pool: Pool
    live: LiveSessions
    store: ArtifactStore
    saved: SavedSessions
    kept: KeptSessions
    preparer: Preparer
    installer: Installer
    checker: Checker
    audit: Audit
    folders: WatchedFolders
    tasks: TaskGroup
    """What goes on without its caller lives here."""
