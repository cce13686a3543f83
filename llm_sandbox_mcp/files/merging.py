"""Decides what goes which way between a folder of a person's and the copy of it that code works in.

Two sides change independently. What both had in common when they were last alike is kept, so that it is known for each
file who changed it. Pure functions: what they decide is done elsewhere, where each file is checked once more.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from ..backends.listing import FOLDER, Entry, Stamp, Tree
from ..base.text import is_text

DEPTH = 64
"""How many folders a path can be in."""
VERSIONS = 1000
"""How many names beside a file or a folder are tried."""
_NAME_BYTES, _PATH_BYTES = 255, 4000

NEVER = Entry("f", 0, Stamp(0, 0, 0, 0))
"""Equals nothing that exists: the folder has something else than the copy, and gets into it at the next run."""


class Pair(NamedTuple):
    """One name on both sides, when they were last alike."""

    host: Entry
    inside: Entry
    made: bool = False
    """Whether code made the file, so that its permissions are the code's to change."""


DATABASE_ENDS = ("-journal", "-wal", "-shm")
"""What SQLite adds to the name of a database for files that it has beside it while it is open. While one of the first
two has content, the database is not complete without it, and an older one would undo what is in a newer database."""

Base = Mapping[str, Pair]
"""What both sides had in common, by path."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """What the copy gets before a run."""

    copied: list[str] = field(default_factory=list)
    """Files and folders, each after the folder that it is in."""
    removed: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What code changed in its copy."""

    folders: list[str] = field(default_factory=list)
    """New ones, each after the one that it is in."""
    moved: dict[str, str] = field(default_factory=dict)
    """New names of files, by their old ones; each new name is in `files` too, and no old one in `gone`."""
    files: list[str] = field(default_factory=list)
    """Changed and new ones."""
    sources: dict[str, list[str]] = field(default_factory=dict)
    """New names of what was in a file that is changed too: one that could not be saved there must not be replaced."""
    circles: list[str] = field(default_factory=list)
    """Those of them whose contents changed places."""
    gone: list[str] = field(default_factory=list)
    """Files and folders, each before the folder that it is in."""
    kept: list[str] = field(default_factory=list)
    """Those whose content code has only under names that are never saved, so that they are not deleted."""
    special: list[str] = field(default_factory=list)
    """What is never saved: links, pipes, sockets, devices, and names that are not UTF-8, too long or too deep."""
    databases: list[str] = field(default_factory=list)
    """Changed databases that code has not closed. They are saved when they are, and the files beside them never are."""

    def __bool__(self) -> bool:
        return any((self.folders, self.moved, self.files, self.gone, self.kept, self.special, self.databases))

    def limit(self, files: int) -> int:
        """Leaves out files beyond so many, and then everything that is gone; returns how many were left out."""
        later = self.files[files:]
        if later:
            # What is gone may be in a file that is left out.
            del self.files[files:]
            kept = {*self.files}
            for old, new in [*self.moved.items()]:
                if new not in kept:
                    del self.moved[old]
            self.gone.clear()
        return len(later)


def incoming(base: Base, host: Tree, inside: Tree | None, unseen: Tree, told: Tree) -> Incoming:
    """What has changed in the folder since both were alike, without what code changed too; that is settled later.

    `inside` is what the copy has now; None if code's own changes of the copy do not count. `unseen` are files that
    cannot be read. `told` are special files of the code's, which give way to what gets their name in the folder.
    """
    found = Incoming()
    own = {name for name, entry in told.items() if inside is not None and inside.get(name) == entry}

    databases = {_database(name) for names in (base, host, inside or ()) for name in names if _is_of_database(name)}

    def is_unchanged(name: str) -> bool:
        """Whether code has changed neither what has this name in the copy, nor the folders above it."""
        if inside is None or _hidden(name):
            return True
        if name not in own and inside.get(name) != (base[name].inside if name in base else None):
            # Two new folders are one.
            return name not in base and inside.get(name) == host.get(name) == FOLDER
        # A folder that comes now, in place of something else, has been looked at before what is in it.
        return all(inside.get(above, FOLDER) == FOLDER or above in coming for above in parents(name))

    def is_free(name: str) -> bool:
        """Whether code has changed neither what has this name, nor, of a database, its other files."""
        main = _database(name)
        others = (main, *(main + end for end in DATABASE_ENDS)) if main in databases else (name,)
        return all(map(is_unchanged, others))

    coming: set[str] = set()
    for name in sorted(host):
        entry, pair = host[name], base.get(name)
        if entry.kind not in "fd" or (pair is not None and pair.host == entry) or unseen.get(name) == entry:
            continue
        if is_free(name):
            found.copied.append(name)
            coming.add(name)
            if name in own or (pair is not None and pair.inside.kind != entry.kind):
                found.removed.append(name)
    found.removed.extend(name for name in base if (name not in host or host[name].kind not in "fd") and is_free(name))
    return found


def outgoing(
    base: Base,
    inside: Tree,
    told: Tree,
    *,
    mapped: Collection[str] = (),
    folders: Mapping[str, int] = MappingProxyType({}),
    hidden: Collection[int] = (),
) -> Outgoing:
    """What code has changed in its copy since both were alike; without what was `told` before to be never saved.

    Files that are `mapped` may have changed without any sign of it. `folders` are the inodes that the copy's folders
    had then, `hidden` those of what is hidden in it now.
    """
    found = Outgoing()
    by_inode: dict[int, str] = {}
    overwritten = {
        pair.inside.stamp.inode: name
        for name, pair in base.items()
        if pair.inside.kind == "f" and pair.host != NEVER and name in inside
        if inside[name].stamp.inode != pair.inside.stamp.inode
    }
    never = {*hidden}
    gone = [name for name, pair in base.items() if _is_gone(name, pair, inside)]
    # What SQLite removed when it closed a database is not removed from another version of the database.
    gone = [name for name in gone if not (_is_of_database(name) and _is_file(_database(name), inside))]
    for name in gone:
        if base[name].inside.kind == "f" and base[name].host != NEVER:
            by_inode[base[name].inside.stamp.inode] = name
    for name in sorted(inside):
        entry, pair = inside[name], base.get(name)
        if pair is not None and pair.inside == entry and not (name in mapped and entry.kind == "f"):
            continue
        if told.get(name) == entry:
            never.add(entry.stamp.inode)
            continue
        if entry.kind == "f" and entry.stamp.inode in overwritten:
            found.sources.setdefault(overwritten[entry.stamp.inode], []).append(name)
        if entry.kind not in "fd" or not _can_be_saved(name):
            found.special.append(name)
            never.add(entry.stamp.inode)
        elif _is_of_database(name) and _is_file(main := _database(name), inside):
            if _is_open(main, inside) and main not in found.databases:
                found.databases.append(main)
        elif entry.kind == "f" and _is_open(name, inside):
            found.databases.append(name)
        elif entry == FOLDER:
            found.folders.append(name)
        else:
            found.files.append(name)
            if pair is None and (old := by_inode.pop(entry.stamp.inode, None)) is not None:
                found.moved[old] = name
    never.discard(0)  # of folders
    for name in {*gone} - {*found.moved}:
        if base[name].inside.stamp.inode in never or any(folders.get(one) in never for one in (name, *parents(name))):
            found.kept.append(name)
    found.gone.extend(sorted({*gone} - {*found.moved} - {*found.kept}, reverse=True))
    found.files[:], found.circles[:] = _in_order(found.files, found.sources)
    return found


def _in_order(files: Sequence[str], sources: dict[str, list[str]]) -> tuple[list[str], list[str]]:
    """Puts each file behind its `sources`, where that is possible; takes those out that changed places in a circle.

    Returns all files, and those of circles.
    """
    known = {*files}
    for replaced in {*sources} - known:  # by something that is not saved now
        del sources[replaced]
    target = {name: replaced for replaced, names in sources.items() for name in names}
    missing = {replaced: len(known.intersection(names)) for replaced, names in sources.items()}
    order = [name for name in files if not missing.get(name)]
    for name in order:  # grows
        if name in target:
            missing[target[name]] -= 1
            if not missing[target[name]]:
                order.append(target[name])
    circles = [name for name in files if missing.get(name)]
    for name in circles:
        del sources[name]
    return [*order, *circles], circles


def moved_folders(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, str]:
    """The new names of folders that code moved, by their old ones, the outermost first; from their inodes."""
    new = {inode: name for name, inode in after.items() if name not in before}
    return {name: new[before[name]] for name in sorted(before) if name not in after and before[name] in new}


def topmost(names: Collection[str]) -> Iterator[str]:
    """These names without those in folders that are among them too; a folder can have a slash at its end."""
    known = {name.rstrip("/") for name in names}
    return (name for name in names if not any(above in known for above in parents(name.rstrip("/"))))


def beside(name: str, number: int) -> str:
    """The name under which the code's version of a file is kept where the file's own name is a person's."""
    stem, dot, suffix = name.rpartition(".")
    if not stem:
        stem, dot, suffix = name, "", ""
    end = f".from-code{f'-{number}' if number > 1 else ''}{dot}{suffix}".encode()
    if len(end) > _NAME_BYTES // 2:  # no suffix that anybody would miss
        stem, end = name, f".from-code{f'-{number}' if number > 1 else ''}".encode()
    return (stem.encode()[: _NAME_BYTES - len(end)] + end).decode(errors="ignore")


def _is_of_database(name: str) -> bool:
    return name.endswith(DATABASE_ENDS)


def _database(name: str) -> str:
    """The database that a file would belong to; any other name as it is."""
    return name.removesuffix(next((end for end in DATABASE_ENDS if name.endswith(end)), ""))


def _is_file(name: str, inside: Tree) -> bool:
    return name in inside and inside[name].kind == "f"


def _is_open(database: str, inside: Tree) -> bool:
    others = (database + end for end in DATABASE_ENDS[:2])
    return any(_is_file(other, inside) and inside[other].stamp.size for other in others)


def _is_gone(name: str, pair: Pair, inside: Tree) -> bool:
    return not _hidden(name) and (name not in inside or inside[name].kind != pair.inside.kind)


def _can_be_saved(name: str) -> bool:
    return is_text(name) and name.count("/") < DEPTH and len(name) <= _PATH_BYTES and len(name.encode()) <= _PATH_BYTES


def parents(name: str) -> Iterator[str]:
    """The folders that a path is in, the innermost first."""
    while name := name.rpartition("/")[0]:
        yield name


def _hidden(name: str) -> bool:
    return name.startswith(".") or "/." in name
