"""Finds what a profile says of saved sessions: where they are, and how much there can be."""

from pathlib import Path

from ..profile.sections import SessionLimits
from .bounds import Bounds
from .folder import FolderStore
from .kept import KeptSessions
from .saved import SavedSessions


def saved_sessions(limits: SessionLimits, folder: Path) -> SavedSessions:
    """Those that callers save, in a folder of this machine."""
    return SavedSessions(FolderStore(folder), Bounds(limits.saved, limits.saved_size, limits.saved_age))


def kept_sessions(limits: SessionLimits, folder: Path) -> KeptSessions:
    """Those that servers put aside, in a folder of this machine."""
    return KeptSessions(FolderStore(folder), Bounds(limits.kept, limits.saved_size, limits.saved_age))
