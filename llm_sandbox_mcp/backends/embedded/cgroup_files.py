"""The files of control groups: every read and write of them, with the path in each error."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def join(paths: Iterable[str]) -> None:
    """Puts the calling process into a group, by its `join_paths`. OSError, with the path, when it is refused."""
    for path in paths:
        write(path, "0")


def read(path: str) -> str:
    """The text of a control file, without what makes a Python file slow: every run reads some."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = b""
        while part := os.read(descriptor, 1 << 16):
            text += part
    finally:
        os.close(descriptor)
    return text.decode("ascii")


def write(path: str, value: str) -> None:
    """Sets a control file, in one write as the kernel asks; never creates one."""
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(descriptor, value.encode())
    except OSError as exc:
        raise OSError(exc.errno, exc.strerror, path) from None
    finally:
        os.close(descriptor)


def processes(directory: str) -> set[int]:
    """The processes of a group and not of those below it, by ids of the reader's namespace; empty once it is gone."""
    try:
        return set(map(int, read(f"{directory}/cgroup.procs").split()))
    except FileNotFoundError:
        return set()


def subgroups(directory: str) -> list[str]:
    """The names of the groups directly below; empty where there is no such group."""
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def make(directory: str) -> None:
    """Makes a group, which may be there already."""
    if not os.path.isdir(directory):
        os.mkdir(directory)


def remove(directories: Iterable[str]) -> bool:
    """Removes as many of these groups as can be; False while processes or groups are in one."""
    removed = True
    for directory in directories:
        try:
            os.rmdir(directory)
        except FileNotFoundError:
            continue
        except OSError:
            removed = False
    return removed


def hand_on(directory: str, controllers: Iterable[str]) -> set[str]:
    """Makes controllers available to the groups below (version 2); gives those that are.

    OSError when the kernel refuses the last of them too.
    """
    path = f"{directory}/cgroup.subtree_control"
    enabled = set(read(path).split()) & set(controllers)
    refusal: OSError | None = None
    for controller in set(controllers) - enabled:
        try:
            # One at a time: a write that names several sets all or none.
            write(path, f"+{controller}")
            enabled.add(controller)
        except OSError as exc:
            refusal = exc
    if refusal is not None and not enabled:
        raise refusal
    return enabled
