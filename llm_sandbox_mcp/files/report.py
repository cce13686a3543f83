"""What became of what code changed in its copy of a folder."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Report:
    """What became of the changes; paths below the folder."""

    saved: list[str] = field(default_factory=list)
    moved: dict[str, str] = field(default_factory=dict)
    """The new names of files, by their old ones."""
    folders: list[str] = field(default_factory=list)
    """New ones."""
    deleted: list[str] = field(default_factory=list)
    beside: dict[str, str] = field(default_factory=dict)
    """Where the code's version is, of each file that the person changed too, or whose name something else has."""
    missing: list[str] = field(default_factory=list)
    """Those of them that the person deleted or moved."""
    kept: list[str] = field(default_factory=list)
    """What code deleted or moved, and may not delete here."""
    changed: list[str] = field(default_factory=list)
    """What code deleted and the person changed; it is still here."""
    filled: list[str] = field(default_factory=list)
    """Folders that code deleted and that are not empty: they have something that code has not seen."""
    waiting: list[str] = field(default_factory=list)
    """What code deleted, and what is still here until everything else can be saved."""
    bits: set[str] = field(default_factory=set)
    """Files whose permissions code changed, which stay as they were, or which got set-id or sticky bits."""
    attributes: list[str] = field(default_factory=list)
    """Files with extended attributes of the code's."""
    held: list[str] = field(default_factory=list)
    """Files that are saved when code, which has them open for writing, has closed them."""
    incomplete: list[str] = field(default_factory=list)
    """Files that are saved although code has them open for writing."""
    failed: dict[str, list[str]] = field(default_factory=dict)
    """By the reason, what could not be saved; it is tried again after the next run."""
    unready: dict[str, list[str]] = field(default_factory=dict)
    """By the reason, what is tried again after the next run although this machine refused nothing."""
    refused: dict[str, list[str]] = field(default_factory=dict)
    """By the reason, what is never saved."""

    @property
    def unsaved(self) -> bool:
        """Whether something has to be tried again."""
        return bool(self.failed or self.unready)
