"""Finds what a profile says of saved sessions: where they are, and how much there can be."""

from collections.abc import Collection
from pathlib import Path

from ..base.errors import ProfileError
from ..profile.sections import SessionLimits
from .bounds import Bounds
from .folder import FolderStore
from .kept import KeptSessions
from .saved import SavedSessions
from .store import Store


def saved_sessions(limits: SessionLimits, folder: Path, starts: Collection[str] = ()) -> SavedSessions:
    """Those that callers save, in the place that the profile names, or else in this folder.

    `starts` are those that sessions start from. Raises `ProfileError` for a place or a key that cannot be used.
    """
    return SavedSessions(_store(limits, folder), Bounds(limits.saved, limits.saved_size, limits.saved_age), starts)


def kept_sessions(limits: SessionLimits, folder: Path) -> KeptSessions:
    """Those that servers put aside, in the same place."""
    return KeptSessions(_store(limits, folder), Bounds(limits.kept, limits.saved_size, limits.saved_age))


def _store(limits: SessionLimits, folder: Path) -> Store:
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
