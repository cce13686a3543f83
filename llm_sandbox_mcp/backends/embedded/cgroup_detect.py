"""Finds where this process may make control groups; reads only."""

from __future__ import annotations

import os

from llm_sandbox_mcp.backends.embedded import cgroup_files as files
from llm_sandbox_mcp.backends.embedded.cgroups import (
    LEAF,
    OWN_TREES_HINT,
    Hierarchy,
    Unlimited,
    Version1,
    Version2,
    own_group_hint,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_CONTROLLERS = ("memory", "pids", "cpu")
_COUNTS = "cpuacct"
"""Limits nothing and counts processor time, in a tree of its own on version 1."""


def detect(self_cgroup: str | None = None, mountinfo: str | None = None, family: Iterable[int] = ()) -> Hierarchy:
    """Gives version 2 where it limits memory or processes, else version 1, else Unlimited with the reason.

    The texts are those of /proc/self/cgroup and /proc/self/mountinfo, read when not given. `family` are the server's
    processes besides the caller: those may be moved with it.
    """
    try:
        groups = _own_groups(files.read("/proc/self/cgroup") if self_cgroup is None else self_cgroup)
        mounts = _mounts(files.read("/proc/self/mountinfo") if mountinfo is None else mountinfo)
    except OSError as exc:
        return Unlimited(f"{exc.filename}: {exc.strerror}; mount /proc")
    unified = _place(groups, mounts, "")
    if unified is not None and os.path.basename(unified) == LEAF:
        # This process, or the one that started it, has claimed the group above already.
        unified = os.path.dirname(unified)
    controllers = _available(unified) if unified is not None else []
    if unified is not None and {"memory", "pids"} & set(controllers):
        return _version2(unified, controllers, {os.getpid(), *family})
    trees = {name: place for name in _CONTROLLERS if (place := _place(groups, mounts, name)) is not None}
    writable = {name: place for name, place in trees.items() if os.access(place, os.W_OK | os.X_OK)}
    if writable:
        counts = _place(groups, mounts, _COUNTS)
        if counts is not None and os.access(counts, os.W_OK | os.X_OK):
            writable[_COUNTS] = counts
        return Version1(writable)
    if trees:
        return Unlimited(f"no write access to {', '.join(dict.fromkeys(trees.values()))}; {OWN_TREES_HINT}")
    if unified is not None:
        return Unlimited(f"{unified} has neither the memory nor the pids controller; {own_group_hint()}")
    return Unlimited("no control groups are mounted; mount them at /sys/fs/cgroup")


def _version2(base: str, controllers: list[str], family: set[int]) -> Hierarchy:
    needed = [base, f"{base}/cgroup.procs", f"{base}/cgroup.subtree_control"]
    if refused := [path for path in needed if not os.access(path, os.W_OK)]:
        return Unlimited(f"no write access to {refused[0]}; {own_group_hint()}")
    # The root of all groups, which alone has no type, may have processes and hand controllers on.
    if not os.path.exists(f"{base}/cgroup.type"):
        return Version2(base, controllers)
    if foreign := files.processes(base) - family:
        return Unlimited(f"{base} holds processes that are not the server's ({_some(foreign)}); {own_group_hint()}")
    return Version2(base, controllers, family)


def _own_groups(text: str) -> dict[str, str]:
    """The group of this process by controller; version 2 is the one without a name."""
    groups = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), path))
    return groups


def _mounts(text: str) -> list[tuple[set[str], str, str]]:
    """Controllers, root and place of each mount of control groups; proc(5) describes the fields."""
    mounts = []
    for line in text.splitlines():
        fields = line.split(" ")
        kind, options = fields[fields.index("-") + 1], fields[-1]
        if kind in ("cgroup", "cgroup2"):
            controllers = {""} if kind == "cgroup2" else set(options.split(","))
            mounts.append((controllers, _unescaped(fields[3]), _unescaped(fields[4])))
    return mounts


def _place(groups: dict[str, str], mounts: list[tuple[set[str], str, str]], controller: str) -> str | None:
    """The directory of this process's group; None where it lies outside what is mounted, as in some containers."""
    path = groups.get(controller)
    for controllers, root, place in mounts:
        if path is None or controller not in controllers or ".." in path.split("/"):
            continue
        if root == "/" or path == root or path.startswith(f"{root}/"):
            return place + (path if root == "/" else path[len(root) :]).rstrip("/")
    return None


def _available(directory: str) -> list[str]:
    try:
        found = files.read(f"{directory}/cgroup.controllers").split()
    except OSError:
        return []
    return [name for name in _CONTROLLERS if name in found]


def _some(processes: set[int]) -> str:
    first = ", ".join(map(str, sorted(processes)[:3]))
    return first if len(processes) <= 3 else f"{first} and {len(processes) - 3} more"


def _unescaped(path: str) -> str:
    """The kernel writes space, tab, newline and backslash as octal escapes."""
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(escape, character)
    return path
