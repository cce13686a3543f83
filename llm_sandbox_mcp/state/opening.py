"""Finds what a profile says of saved sessions: where they are, and how much there can be."""

from pathlib import Path

from ..base.errors import ProfileError
from ..profile.profile import Profile
from ..profile.sections import SessionLimits
from .bounds import Bounds
from .folder import FolderStore
from .kept import KeptSessions
from .saved import SavedSessions
from .store import Store


def saved_sessions(profile: Profile, folder: Path) -> SavedSessions:
    """Those that callers save, in the place that the profile names, or else in this folder.

    Raises `ProfileError` for a place or a key that cannot be used.
    """
    limits = profile.sessions
    bounds = Bounds(limits.saved, limits.saved_size, limits.saved_age)
    return SavedSessions(_store(profile, folder), bounds, profile.starts.values())


def kept_sessions(profile: Profile, folder: Path) -> KeptSessions:
    """Those that servers put aside, in the same place."""
    limits = profile.sessions
    return KeptSessions(_store(profile, folder), Bounds(limits.kept, limits.saved_size, limits.saved_age))


def _store(profile: Profile, folder: Path) -> Store:
    try:
        return _opened(profile.sessions, folder)
    except ProfileError as error:
        raise profile.mistake(error.key, error.reason, error.step) from error


def _opened(limits: SessionLimits, folder: Path) -> Store:
    store: Store
    if limits.in_objects:
        try:
            from .objects import ObjectStore
        except ImportError as error:
            step = "pip install 'llm-sandbox-mcp[object-store]'"
            raise ProfileError(f"{limits.store} needs {error.name}", step, key="sessions.store") from error

        store = ObjectStore(limits.store)
    else:
        store = FolderStore(Path(limits.store or folder))
    if not limits.key_file:
        return store

    from .encrypted import EncryptedStore, read_keys

    return EncryptedStore(store, read_keys(Path(limits.key_file)))
