"""Writes what code changed in its copy of a folder into the folder itself, without losing anything of the person's.

Each file is written whole or not at all, and only over what the code's copy was made of. Where the person changed a
file meanwhile, theirs stays and the code's version gets a name beside it.
"""

import errno
import os
import stat
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ..backends.archive import ArchiveReader, Member
from ..backends.listing import FOLDER, Entry, Stamp, Tree
from ..base.open_folders import OpenFolder
from .beneath import Changed, InTheWay, move_file, regular_state, remove_file
from .drafts import Draft, NotOwned, new_file
from .merging import DATABASE_ENDS, NEVER, Outgoing, Pair, parents
from .places import KeptOut, Places
from .report import Report

_PART = 1 << 20
_WIDEST, _LEAST = 0o755, 0o600
"""The permissions that a new file can have at most, and has at least."""
_SET_BITS = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX


class Saving:
    """Saves one set of changes, in worker threads: `begin`, `wanted`, `feed` an archive of that, `finish`, `close`.

    Takes note in `base` of each change that is settled. After an archive that is not whole, `wanted` begins another.
    """

    def __init__(
        self,
        folder: OpenFolder,
        base: dict[str, Pair],
        inside: Tree,
        plan: Outgoing,
        largest: int,
        *,
        whole: bool = True,
        last: bool = False,
        held: Collection[str] = (),
    ) -> None:
        """`largest` is the most bytes that one file can have.

        If not `whole`, code was stopped, and what it was writing may be incomplete: it replaces no file of the
        person's, and what seems to be deleted may only be about to be written anew. Files that are `held` may be
        incomplete too, since code has them open for writing; `last` says that nothing is saved after this.
        """
        self.report = Report()
        self._whole = whole
        self._last = last
        # What changed places waits together: each file has the only copy of another one's content.
        self._held = {*held, *plan.circles} if {*plan.circles}.intersection(held) else held
        self._taken = {*plan.gone, *plan.moved, *plan.moved.values(), *plan.files, *plan.folders}
        """What code itself made, moved or deleted: never the names of what is kept beside something."""
        self._places = Places(Path(folder.path), self._taken)
        self._deletes = folder.deletes
        self._replaces = folder.deletes and whole
        """Whether what code made can take the place of something else."""
        self._base = base
        self._inside = inside
        self._plan = plan
        self._gone = {name: base[name].host for name in plan.gone}
        """What the folder has under the names that are gone."""
        self._replaced = {*plan.gone, *plan.moved} & {*plan.folders, *plan.files}
        """Names of files and folders that something of another kind has in the copy."""
        self._aside: dict[str, str] = {}
        """Those of them that get their names when all else is saved, with the paths that they have until then."""
        self._wanted = {*plan.files}
        self._largest = largest
        self._reader = ArchiveReader(largest, _PART)
        self._waiting = {*plan.databases}
        """What is saved when code has closed it."""
        self._failed: set[str] = set()
        self._refused: set[str] = set()
        self._open = ExitStack()
        self._current: _File | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing has to be tried again."""
        return not (self.report.unsaved or self.report.waiting or self.report.held or self._plan.databases)

    def begin(self) -> None:
        """Moves what was moved, and makes new folders."""
        for name in self._plan.folders if self._replaces else ():
            if name in self._replaced:
                with self._failing(name):
                    self._aside[name] = self._places.set_aside(name)
        for old, new in self._plan.moved.items():
            if not self._replaces or not self._move(old, new):
                self._gone[old] = self._base[old].host
        for name in self._plan.folders:
            with self._failing(name):
                with self._places.open(f"{name}/"):
                    pass
                detoured = self._places.is_detour(f"{name}/")
                self._base[name] = Pair(NEVER if detoured else FOLDER, FOLDER)
                if detoured:
                    self.report.beside[f"{name}/"] = f"{self._places.path(f'{name}/')}"
                else:
                    self.report.folders.append(name)

    def wanted(self) -> list[str]:
        """The files that an archive should have, of which `feed` takes the first bytes next."""
        self._end_file()
        self._reader = ArchiveReader(self._largest, _PART)
        return [name for name in self._plan.files if name in self._wanted and name not in self._failed]

    def feed(self, data: bytes) -> None:
        """Takes the next bytes of an archive of the changed files, and saves each that is complete."""
        for part in self._reader.feed(data):
            if part.offset == 0:
                self._open_next(part)
                if part.attributes and self._current is not None:
                    self.report.attributes.append(part.name)
            if self._current is None or part.name != self._current.name:
                continue
            with self._failing(part.name):
                if part.size != self._inside[part.name].stamp.size:
                    raise _Unready("code is still writing it")
                self._current.draft.write(part.content)
                if part.ends:
                    self._settle(self._current)
            if part.ends or part.name in self._failed:
                self._end_file()

    def finish(self) -> None:
        """Deletes what was deleted, or takes note of it; not before all else is saved, which may be a copy of it."""
        for name in sorted(self._wanted):
            self._fail(name, "it could not be read completely", self.report.unready)
        kept = [*self._plan.kept]
        if self.report.refused:  # which may be a copy of what is gone
            kept += self._gone
        elif self.report.incomplete or not (self.complete and self._whole):
            settled = self._replaced - self._failed
            kept += (name for name in self._gone if any(one in settled for one in (name, *parents(name))))
            self.report.waiting += self._gone.keys() - {*kept}
        elif not self._deletes:
            kept += self._gone
        else:
            for name in sorted(self._gone, reverse=True):
                self._drop(name)
            for name in [name for name in self._aside if self._give_name(name)]:
                del self._aside[name]
        for name in kept:
            self.report.kept.append(name)
            self._forget(name)

    def close(self) -> None:
        """Removes the file that is not complete, and takes note of what did not get its name."""
        self._end_file()
        self._keep_aside()

    def _end_file(self) -> None:
        self._current = None
        self._open.close()

    def _open_next(self, part: Member) -> None:
        self._end_file()
        if part.name in self._wanted and part.name not in self._failed:
            with self._failing(part.name):
                folder, last = self._open.enter_context(self._places.open(part.name))
                self._current = _File(part.name, folder, last, self._open.enter_context(new_file(folder)))

    def _settle(self, file: "_File") -> None:
        entry, pair = self._inside[file.name], self._base.get(file.name)
        if entry.mode & _SET_BITS:
            self.report.bits.add(file.name)
        detoured = self._places.is_detour(file.name)
        try:
            if pair is None or pair.host == NEVER or detoured:
                self._create(file, entry, detoured=detoured)
            elif file.name in self._replaced:
                if not self._replaces:
                    raise InTheWay
                self._set_aside(file, entry)
            elif not self._replace(file, entry, pair):
                self.report.held.append(file.name)
                self._waiting.add(file.name)
                self._wanted.discard(file.name)
                return
        except (FileExistsError, Changed, InTheWay, NotOwned):
            # What has the same content must not be what code deleted or moved: that will be gone.
            if self._places.path(file.name) in self._gone or not file.draft.same_as(file.last):
                self._keep_beside(file, entry, pair)
                if pair is not None and not self._exists(file.name):
                    self.report.missing.append(file.name)
            self._base[file.name] = Pair(NEVER, entry)
        if file.name in self._held and (self.report.saved[-1:] == [file.name] or file.name in self.report.beside):
            self.report.incomplete.append(file.name)
        # The files of its own that SQLite removed from the copy are copied again with the folder's version.
        for end in DATABASE_ENDS:
            if file.name + end not in self._inside:
                self._base.pop(file.name + end, None)
        self._wanted.discard(file.name)

    def _create(self, file: "_File", entry: Entry, *, detoured: bool) -> None:
        mode = entry.mode & _WIDEST | _LEAST
        stamp = file.draft.create(file.last, mode=mode, mtime=entry.stamp.mtime)
        if detoured:
            self.report.beside[file.name] = self._places.path(file.name)
            self._base[file.name] = Pair(NEVER, entry)
        else:
            self.report.saved.append(file.name)
            self._base[file.name] = Pair(Entry("f", mode, stamp), entry, made=True)

    def _set_aside(self, file: "_File", entry: Entry) -> None:
        name, stamp = self._create_beside(file, entry, new=True)
        assert stamp is not None
        mode = stat.S_IMODE(os.stat(name, dir_fd=file.folder, follow_symlinks=False).st_mode)
        self._base[file.name] = Pair(Entry("f", mode, stamp), entry, made=True)
        self._aside[file.name] = self._here(file.name, name)
        self.report.saved.append(file.name)

    def _here(self, name: str, last: str) -> str:
        """The path here of something that has another last name than in the copy."""
        return "/".join((*self._places.path(name).split("/")[:-1], last))

    def _replace(self, file: "_File", entry: Entry, pair: Pair) -> bool:
        """Replaces a file, or takes note that it is as it was; false if it has to wait until code has closed it."""
        sources = {*self._plan.sources.get(file.name, ())}
        if lost := sources & (self._wanted | self._failed):
            raise _Unready(f"its older content could not be saved as {min(lost)}")
        waits = file.name in self._held or bool(sources.intersection(self._waiting))
        stamp, mode = pair.host.stamp, pair.host.mode
        if not file.draft.same_as(file.last):
            if self._whole and waits and not (pair.made or self._last):
                return False
            if not ((self._whole and not waits) or pair.made) or _is_open_database(file.folder, file.last):
                raise Changed
            stamp = file.draft.replace(file.last, stamp, mtime=entry.stamp.mtime)
            self.report.saved.append(file.name)
        elif _stamp(file.folder, file.last) != stamp:
            raise Changed
        if entry.mode != pair.inside.mode:
            if pair.made:
                mode = entry.mode & _WIDEST | _LEAST
                stamp = _change_mode(file.folder, file.last, stamp, mode)
            else:
                self.report.bits.add(file.name)
        self._base[file.name] = Pair(Entry("f", mode, stamp), entry, pair.made)
        return True

    def _keep_beside(self, file: "_File", entry: Entry, pair: Pair | None) -> None:
        if pair is not None and pair.host not in (NEVER, FOLDER):
            entry = entry._replace(mode=entry.mode & pair.host.mode)
        name, _ = self._create_beside(file, entry)
        self.report.beside[file.name] = self._here(file.name, name)

    def _create_beside(self, file: "_File", entry: Entry, *, new: bool = False) -> tuple[str, Stamp | None]:
        return file.draft.create_beside(
            file.last,
            mode=entry.mode & _WIDEST | _LEAST,
            mtime=entry.stamp.mtime,
            new=new,
            taken=lambda name: self._here(file.name, name) in self._taken,
        )

    def _move(self, old: str, new: str) -> bool:
        pair = self._base[old]
        try:
            with self._places.open(old, make=False) as source, self._places.open(new, detour=False) as target:
                if _is_open_database(*source):
                    return False
                stamp = move_file(*source, *target, pair.host.stamp)
        except (OSError, Changed, InTheWay):
            return False
        self._base[new] = Pair(Entry("f", pair.host.mode, stamp), pair.inside, pair.made)
        del self._base[old]
        self.report.moved[old] = new
        return True

    def _give_name(self, name: str) -> bool:
        """Gives what code made in place of something that is deleted the name of that, unless something has it now."""
        try:
            if self._inside[name] == FOLDER:
                self._places.give_name(name)
                return True
            pair = self._base[name]
            with self._places.open(name, make=False) as (folder, last):
                aside = self._aside[name].rpartition("/")[2]
                stamp = move_file(folder, aside, folder, last, pair.host.stamp)
        except (OSError, Changed, InTheWay):
            return False
        self._base[name] = pair._replace(host=pair.host._replace(stamp=stamp))
        return True

    def _keep_aside(self) -> None:
        """Takes note of what did not get its name: both versions are kept."""
        kept: dict[str, str] = {}
        for name, pair in [*self._base.items()] if self._aside else ():
            top = next((one for one in (name, *parents(name)) if one in self._aside), "")
            if top and name in self._inside:
                self._base[name] = Pair(NEVER, pair.inside)
                if pair.host != FOLDER:
                    kept[name] = self._aside[top] + name[len(top) :]
        self._aside.clear()
        self.report.saved = [name for name in self.report.saved if name not in kept]
        self.report.folders = [name for name in self.report.folders if self._base.get(name) == Pair(FOLDER, FOLDER)]
        moved = self.report.moved
        moved.update((old, kept.pop(new)) for old, new in [*moved.items()] if new in kept)
        self.report.beside = {**kept, **self.report.beside}

    def _drop(self, name: str) -> None:
        """Deletes what code deleted, if it is what code knew; else it gets into the copy again."""
        known = self._gone[name]
        if known != NEVER:
            with self._failing(name):
                self._delete(name, known)
            if name in self._failed and name not in self._refused:
                return
        self._forget(name)

    def _forget(self, name: str) -> None:
        """Takes what was known about a name out, so that what has it here gets into the copy again."""
        if name not in self._replaced:
            del self._base[name]

    def _delete(self, name: str, known: Entry) -> None:
        try:
            with self._places.open(name, make=False) as (folder, last):
                if known == FOLDER:
                    os.rmdir(last, dir_fd=folder)
                elif _is_open_database(folder, last):
                    raise Changed
                else:
                    remove_file(folder, last, known.stamp)
            self.report.deleted.append(f"{name}/" if known == FOLDER else name)
        except (Changed, InTheWay):
            if self._exists(name):
                self.report.changed.append(name)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP) and self._exists(name):
                self.report.changed.append(name)
            elif error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                self.report.filled.append(name)
            elif error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise

    def _exists(self, name: str) -> bool:
        try:
            with self._places.open(name, make=False) as (folder, last):
                os.lstat(last, dir_fd=folder)
        except OSError:
            return False
        return True

    @contextmanager
    def _failing(self, name: str) -> Iterator[None]:
        """Takes note of what the system refuses, and of what is not ready."""
        try:
            yield
        except _Unready as error:
            self._fail(name, str(error), self.report.unready)
        except KeptOut as error:
            self._refused.add(name)
            self._fail(name, error.strerror or str(error), self.report.refused)
        except OSError as error:
            self._fail(name, error.strerror or str(error), self.report.failed)

    def _fail(self, name: str, why: str, reasons: dict[str, list[str]]) -> None:
        if name not in self._failed:
            self._failed.add(name)
            reasons.setdefault(why, []).append(name)


class _Unready(Exception):
    """A file cannot be saved yet; the message says why."""


@dataclass(frozen=True, slots=True)
class _File:
    """A file that is being received."""

    name: str
    folder: int
    last: str
    draft: Draft


def _stamp(folder: int, name: str) -> Stamp | None:
    try:
        return Stamp.of(os.lstat(name, dir_fd=folder))
    except OSError:
        return None


def _is_open_database(folder: int, name: str) -> bool:
    """Whether a program of the person's has a database open, or left it so."""
    for end in DATABASE_ENDS[:2]:
        with suppress(Changed, InTheWay, OSError):
            if regular_state(folder, name + end).st_size:
                return True
    return False


def _change_mode(folder: int, name: str, expected: Stamp, mode: int) -> Stamp:
    """Sets the permissions of a file that code made; raises `Changed` if it is not the expected one."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        if Stamp.of(os.fstat(descriptor)) != expected:
            raise Changed
        os.fchmod(descriptor, mode)
        return Stamp.of(os.fstat(descriptor))
    finally:
        os.close(descriptor)
