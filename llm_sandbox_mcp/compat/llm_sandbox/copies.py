"""Copying files and folders between this machine and a session, as LLM Sandbox does."""

import io
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from ...backends.layout import WORKDIR
from .exceptions import SecurityError, ValidationError


def sources(source: Path, dest: str) -> Iterator[tuple[Path, str]]:
    """Each file, and each folder without files, to copy, with its destination below the working directory.

    Links are followed.

    Raises `FileNotFoundError` if the source does not exist, `SecurityError` for a destination outside of the working
    directory, and `ValidationError` for special files, such as a pipe, and for links that make a loop.
    """
    if not source.exists():
        raise FileNotFoundError(f"{source} does not exist")
    target = inner(dest, whole=source.is_dir())
    if not source.is_dir():
        yield _with_content(source), target
        return
    for name, _, names in os.walk(source, followlinks=True):
        folder = Path(name)
        if folder.is_symlink() and any(outer.resolve().is_relative_to(folder.resolve()) for outer in folder.parents):
            raise ValidationError(f"{folder} is a link to a folder that contains it", "leave it out")
        # Folders with files are created together with their files.
        for path in [_with_content(folder / name) for name in sorted(names)] or [folder]:
            inside = PurePosixPath(target, path.relative_to(source).as_posix())
            if inside.parts:
                yield path, str(inside)


def _with_content(path: Path) -> Path:
    if path.exists() and not path.is_file():
        raise ValidationError(f"{path} is neither a file nor a folder", "leave it out")
    return path


def inner(path: str, *, whole: bool = False) -> str:
    """A path of the sandbox, relative to its working directory; the working directory itself only if `whole`."""
    pure = PurePosixPath(path)
    if ".." in pure.parts:
        raise SecurityError(f"{path!r} leads out of its folder", "leave out the '..'")
    if pure.is_absolute():
        if not pure.is_relative_to(WORKDIR):
            raise ValidationError(
                f"{path!r} is not below {WORKDIR}, and files are copied only to and from that folder",
                "name a path there, and use execute_command to copy between the two",
            )
        pure = pure.relative_to(WORKDIR)
    if not (pure.parts or whole):
        raise ValidationError(f"{path!r} does not name a file", "add a name")
    return str(pure)


def known(archive: bytes) -> dict[str, Any]:
    """The metadata of an archive's first entry: name, size, mode and modification time."""
    with _reading(archive) as reader:
        first = reader.next()
    if first is None:
        raise FileNotFoundError("the archive is empty")
    return {"name": first.name, "size": first.size, "mode": first.mode, "mtime": int(first.mtime), "linkTarget": ""}


def unpack(archive: bytes, dest: Path) -> None:
    """Writes a single file to `dest`, or the content of a folder into the folder `dest`.

    The archive comes from inside a sandbox and is not trusted: links are left out, and an entry that leads out of
    `dest` is a `SecurityError`.
    """
    with _reading(archive) as reader:
        members = [member for member in reader.getmembers() if member.isfile() or member.isdir()]
        files = [member for member in members if member.isfile()]
        if len(members) == 1 and files:
            dest.parent.mkdir(parents=True, exist_ok=True)
            _write(reader, files[0], dest)
            return
        dest.mkdir(parents=True, exist_ok=True)
        for member in members:
            # The filters of tarfile are not used, because Python 3.11 has them only since 3.11.4.
            path = dest.joinpath(member.name).resolve()
            if not path.is_relative_to(dest.resolve()):
                raise SecurityError(f"{member.name!r} of the archive leads out of {dest}")
            (path if member.isdir() else path.parent).mkdir(parents=True, exist_ok=True)
            if member.isfile():
                _write(reader, member, path)


def _write(reader: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    content = reader.extractfile(member)
    if content is not None:
        with path.open("wb") as file:
            shutil.copyfileobj(content, file)
        path.chmod(member.mode & 0o755 | 0o600)


def _reading(archive: bytes) -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=io.BytesIO(archive), mode="r:")
    except tarfile.TarError as error:
        raise ValidationError(f"the data from the sandbox is not an archive: {error}") from error
