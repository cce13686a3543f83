"""Copies files into and out of a session's working directory, one at a time, and reads its artifacts."""

import os
import posixpath
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from ..backends import copying
from ..backends.archive import Member
from ..backends.layout import WORKDIR
from ..base.errors import BadPath, RequestError, quoted
from ..base.open_folders import OpenFolder
from ..base.results import Artifact, HostFile, Saved, StoreStatistics
from ..base.units import format_size
from ..files import hostfiles
from ..files.artifacts import describe, inner_path
from ..files.media import mime_type
from ..files.pictures import Pictures
from .parts import Parts


class Files:
    """The files of all sessions. Each use raises `UnknownSession`, and `BadPath` for a path that cannot be used."""

    def __init__(self, parts: Parts) -> None:
        self.folders = parts.profile.files.opened
        """The folders of this machine whose files may be read, or also written."""
        self._largest = parts.profile.artifacts.file_size
        self._policy = parts.profile.policy()
        self._sessions = parts.live
        self._store = parts.store
        self._written = hostfiles.Memory()

    async def copy_in(self, session_id: str, path: str, data: bytes, *, executable: bool = False) -> Artifact:
        """Writes a file below the working directory of a session."""

        async def content() -> AsyncIterator[bytes]:
            yield data

        return await self._write(session_id, path, len(data), content, executable=executable)

    def check(self, path: str, size: int) -> None:
        """Raises `BadPath` for a file that no session takes, before one is opened for it."""
        inner_path(path)
        if size > (limit := self._policy.largest_file):
            raise _too_large(path, size, limit)

    async def check_from_host(self, path: str, host_path: str, folders: Sequence[OpenFolder]) -> None:
        """The same for a file of this machine, from one of these folders or from below it."""
        async with hostfiles.open_source(host_path, folders, hidden=False) as (size, _):
            self.check(path, size)

    async def make_folder(self, session_id: str, path: str) -> None:
        """Makes a folder below the working directory of a session, unless it exists."""
        session = self._sessions.get(session_id)
        name = inner_path(path)
        async with session.exclusive():
            await copying.make_folder(await session.sandbox(), name)

    async def copy_in_from_host(
        self, session_id: str, path: str, host_path: str, folders: Sequence[OpenFolder], *, hidden: bool = False
    ) -> Artifact:
        """Copies a file of this machine into a session, from one of these folders or from below it.

        `hidden`: also a hidden file, or a setting of a repository. A model must not name these, a person can.
        """
        async with hostfiles.open_source(host_path, folders, hidden=hidden) as (size, content):
            return await self._write(session_id, path, size, content)

    async def copy_out(self, session_id: str, path: str) -> Artifact:
        """Copies a file of a session into its artifacts."""
        session = self._sessions.get(session_id)
        name, content = await self._read(session_id, path)
        return await self._store.put(session, name, content)

    async def copy_out_to_host(self, session_id: str, path: str, host_path: str) -> tuple[Artifact, HostFile]:
        """Copies a file of a session to this machine, into a folder that is open for writing.

        What has that name there is replaced only if this server wrote it; else the file gets a name beside it.
        """
        async with hostfiles.open_target(host_path, self.folders, self._written.begin()) as target:
            name, content = await self._read(session_id, path)
            return describe(name, content), await target.write(content)

    async def read(self, session_id: str, path: str) -> bytes:
        """The content of a file of a session; it is not stored."""
        _, content = await self._read(session_id, path)
        return content

    async def pack(self, session_id: str, path: str) -> bytes:
        """A file or folder of a session, or its whole working directory, as a tar archive that is not stored.

        Raises `UnknownFile` if there is no such file or folder.
        """
        session = self._sessions.get(session_id)
        whole = posixpath.normpath(path) in (".", WORKDIR)
        place = WORKDIR if whole else f"{WORKDIR}/{inner_path(path)}"
        async with session.exclusive():
            return await copying.pack(await session.sandbox(), place)

    def artifacts(self, session_id: str) -> tuple[Artifact, ...]:
        """What the runs of a session left behind; also of a session that has ended, while the store keeps it."""
        kept = self._store.of_session(session_id)
        if not kept:
            self._sessions.get(session_id)
        return kept

    async def read_artifact(
        self, session_id: str, name: str, offset: int = 0, length: int = -1
    ) -> tuple[Artifact, bytes]:
        """An artifact and its content, or so many bytes of it."""
        self.artifacts(session_id)
        return await self._store.read(session_id, name, offset, length)

    async def pictures(self, session_id: str, artifacts: Sequence[Artifact]) -> Pictures:
        """Which of these artifacts are pictures that are shown as they are, and which are pictures that are not."""
        return await self._store.pictures(session_id, artifacts)

    async def save_artifacts(self, session_id: str, names: Iterable[str], host_folder: str) -> Saved:
        """Writes artifacts below a folder of this machine that is open for writing.

        Missing folders are made. What has one of the names there is replaced only if this server wrote it; else the
        artifact gets a name beside it.
        """
        call, files, failed = self._written.begin(), list[HostFile](), dict[str, str]()
        for name in names:
            # A caller may give the whole path of the file that is to be written.
            host_path = os.path.join(host_folder.removesuffix(f"/{name}"), name)
            try:
                _, content = await self.read_artifact(session_id, name)
                async with hostfiles.open_target(host_path, self.folders, call, make=True) as target:
                    files.append(await target.write(content))
            except RequestError as error:
                failed[name] = str(error)
        return Saved(tuple(files), failed)

    def statistics(self) -> StoreStatistics:
        """How much the runs of all sessions left behind."""
        return self._store.statistics()

    def on_artifacts_changed(self, listener: Callable[[str, tuple[str, ...]], None]) -> None:
        """Calls back with session id and names whenever artifacts change."""
        self._store.listen(listener)

    async def _write(
        self, session_id: str, path: str, size: int, content: copying.Chunks, *, executable: bool = False
    ) -> Artifact:
        name = inner_path(path)
        session = self._sessions.get(session_id)
        if size > (limit := session.policy.largest_file):
            raise _too_large(path, size, limit)
        async with session.exclusive():
            await copying.copy_in(await session.sandbox(), name, size, content, executable=executable)
        return Artifact(name, mime_type(name), size)

    async def _read(self, session_id: str, path: str) -> tuple[str, bytes]:
        """The name and the content of one regular file, which may be as large as an artifact."""
        session = self._sessions.get(session_id)
        name = inner_path(path)
        found: list[Member] = []

        async def take(member: Member) -> None:
            if member.name == name:
                found.append(member)

        async with session.exclusive():
            await copying.copy_out(await session.sandbox(), WORKDIR, [name], self._largest, take)
        if not found:
            raise BadPath(f"path {quoted(path)} is not a regular file in {WORKDIR}", "run code to list the files there")
        if (size := found[0].size) > self._largest:
            raise _too_large(path, size, self._largest, " (artifacts.file_size in the profile)")
        return name, bytes(found[0].content)


def _too_large(path: str, size: int, limit: int, key: str = "") -> BadPath:
    return BadPath(f"path {quoted(path)} has {format_size(size)}; the limit is {format_size(limit)}{key}")
