"""Reads and writes the files of control groups; every error contains the path."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def join(paths: Iterable[str]) -> None:
    """Moves the calling process into the group with these `join_paths`. OSError, with the path, if that is refused."""
    for path in paths:
        write(path, "0")


def read(path: str) -> str:
    """The text of a control file; does not use a Python file object, which is slower: every run reads some files."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = b""
        while part := os.read(descriptor, 1 << 16):
            text += part
    finally:
        os.close(descriptor)
    return text.decode("ascii")


def write(path: str, value: str) -> None:
    """Sets a control file in a single write, as the kernel requires; never creates one."""
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(descriptor, value.encode())
    except OSError as exc:
        raise OSError(exc.errno, exc.strerror, path) from None
    finally:
        os.close(descriptor)


def processes(directory: str) -> set[int]:
    """The processes of a group but not of its subgroups, as ids in the reader's PID namespace; empty if it is gone."""
    try:
        return set(map(int, read(f"{directory}/cgroup.procs").split()))
    except FileNotFoundError:
        return set()


def subgroups(directory: str) -> list[str]:
    """The names of the direct subgroups; empty if the group does not exist."""
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def make(directory: str) -> None:
    """Makes a group unless it exists."""
    if not os.path.isdir(directory):
        os.mkdir(directory)


def remove(directories: Iterable[str]) -> bool:
    """Removes as many of these groups as possible; False while one of them contains processes or groups."""
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
    """Makes controllers available to the subgroups (version 2); returns the available ones.

    OSError if the kernel refuses every one of them.
    """
    path = f"{directory}/cgroup.subtree_control"
    enabled = set(read(path).split()) & set(controllers)
    refusal: OSError | None = None
    for controller in set(controllers) - enabled:
        try:
            # One at a time: a write with several controllers sets all or none.
            write(path, f"+{controller}")
            enabled.add(controller)
        except OSError as exc:
            refusal = exc
    if refusal is not None and not enabled:
        raise refusal
    return enabled
