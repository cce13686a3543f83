"""Finds where this process is allowed to make control groups; only reads, changes nothing."""

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
"""Controller that limits nothing but counts processor time; on version 1 it has its own tree."""


def detect(self_cgroup: str | None = None, mountinfo: str | None = None, family: Iterable[int] = ()) -> Hierarchy:
    """Returns Version2 if that can limit memory or processes, else Version1, else Unlimited with the reason.

    The texts are the contents of /proc/self/cgroup and /proc/self/mountinfo, which are read if not given. `family` are
    the server's processes other than the caller: they may be moved together with it.
    """
    try:
        groups = _own_groups(files.read("/proc/self/cgroup") if self_cgroup is None else self_cgroup)
        mounts = _mounts(files.read("/proc/self/mountinfo") if mountinfo is None else mountinfo)
    except OSError as exc:
        return Unlimited(f"{exc.filename}: {exc.strerror}", "mount /proc")
    unified = _place(groups, mounts, "")
    if unified is not None and os.path.basename(unified) == LEAF:
        # This process, or the process that started it, has already claimed the parent group.
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
        return Unlimited(f"no write access to {', '.join(dict.fromkeys(trees.values()))}", OWN_TREES_HINT)
    if unified is not None:
        return Unlimited(f"{unified} has neither the memory nor the pids controller", own_group_hint())
    return Unlimited("no control groups are mounted", "mount them at /sys/fs/cgroup")


def _version2(base: str, controllers: list[str], family: set[int]) -> Hierarchy:
    needed = [base, f"{base}/cgroup.procs", f"{base}/cgroup.subtree_control"]
    if refused := [path for path in needed if not os.access(path, os.W_OK)]:
        return Unlimited(f"no write access to {refused[0]}", own_group_hint())
    # The root group, the only one without a type, may contain processes and still pass controllers on.
    if not os.path.exists(f"{base}/cgroup.type"):
        return Version2(base, controllers)
    if foreign := files.processes(base) - family:
        return Unlimited(f"{base} contains processes that are not the server's ({_some(foreign)})", own_group_hint())
    return Version2(base, controllers, family)


def _own_groups(text: str) -> dict[str, str]:
    """The group of this process for each controller; the empty name is version 2."""
    groups = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), path))
    return groups


def _mounts(text: str) -> list[tuple[set[str], str, str]]:
    """Controllers, root and mount point of each mount of control groups; proc(5) describes the fields."""
    mounts = []
    for line in text.splitlines():
        fields = line.split(" ")
        kind, options = fields[fields.index("-") + 1], fields[-1]
        if kind in ("cgroup", "cgroup2"):
            controllers = {""} if kind == "cgroup2" else set(options.split(","))
            mounts.append((controllers, _unescaped(fields[3]), _unescaped(fields[4])))
    return mounts


def _place(groups: dict[str, str], mounts: list[tuple[set[str], str, str]], controller: str) -> str | None:
    """The directory of this process's group; None if it is outside of all mounts, as in some containers."""
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
