"""Limits on memory, processes and CPU by control groups: version 2, version 1, or none with the reason.

    hierarchy = detect().claim(server_id)
    group = hierarchy.create(sandbox_id, Limits(memory=2**29, pids=64, cpus=1.0))
    files.join(group.join_paths)   # in the child, before it gives its privileges up

Groups lie below the server's own: `llm-sandbox-mcp-<server id>/<sandbox id>`. The kernel's interface is described in
https://docs.kernel.org/admin-guide/cgroup-v2.html and https://docs.kernel.org/admin-guide/cgroup-v1/. Imported by a
process that must start at once: `os` only.
"""

from __future__ import annotations

import os

from llm_sandbox_mcp.backends.embedded import cgroup_files as files
from llm_sandbox_mcp.backends.embedded.cgroup import Group

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PREFIX = "llm-sandbox-mcp-"
LEAF = "llm-sandbox-mcp:server"
"""Where a server on version 2 moves itself; the colon keeps it apart from every `PREFIX` group."""

_PERIOD = 100_000
_SMALLEST_QUOTA = 1_000
"""Microseconds: the kernel refuses a CPU quota below 1 ms."""
_SWAP_FILES = ("memory.swap.max", "memory.memsw.limit_in_bytes")


class Limits:
    """What one sandbox may use at most; None is no limit of its own."""

    __slots__ = ("cpus", "memory", "pids")

    def __init__(self, memory: int | None = None, pids: int | None = None, cpus: float | None = None) -> None:
        self.memory = memory
        """Bytes, of memory alone: swap is not used."""
        self.pids = pids
        """Processes and threads together."""
        self.cpus = cpus
        """CPUs' worth of time, such as 0.5."""


class Hierarchy:
    """Where groups can be made: one of Version2, Version1, Unlimited."""

    version = 0
    reason = ""
    """Why there are no limits, and what to do about it; empty where there are."""

    def __init__(self, bases: dict[str, str]) -> None:
        self.bases = bases
        """The server's own group, by controller."""
        self._server = ""
        self._lacking: dict[str, str] | None = None
        """The limits that do not hold here; None where that is not known yet."""

    def claim(self, server: str) -> Hierarchy:
        """Makes the server's group; gives back self, or Unlimited where the kernel refused it."""
        raise NotImplementedError

    def create(self, name: str, limits: Limits) -> Group:
        """Makes a group below the claimed one.

        OSError when it cannot be made, for a name that is taken as well, and when it lacks a limit that held in
        `try_limits`: nothing else would hold it.
        """
        if not self._server:
            raise RuntimeError("claim(server_id) comes before create()")
        group = self._group(self._server, plain(name))
        group.make()
        for limit, controller, settings in self._settings(limits):
            if getattr(limits, limit) is None:
                continue
            if (directory := group.by_controller.get(controller)) is None:
                group.degraded[limit] = self.reason or f"there is no {controller} controller"
            elif failures := _apply(directory, settings):
                group.degraded[limit] = ", ".join(failures)
        for limit, reason in group.degraded.items():
            if self._lacking is not None and limit not in self._lacking:
                group.remove()
                raise OSError(f"its limit on {limit} cannot be set: {reason}")
        return group

    def try_limits(self, widest: Limits) -> dict[str, str]:
        """Makes a group for trial, and returns the limits that groups do not hold here, each with its reason.

        `cpu_time`, which is counted and not limited, is among them where nobody counts.
        """
        group = self.create("trial", widest)
        try:
            uncounted = {"cpu_time": self.reason or "nobody counts it"} if group.cpu_usage() is None else {}
            self._lacking = {**group.degraded, **uncounted}
            return self._lacking
        finally:
            group.remove()

    def close(self) -> bool:
        """Removes the server's group; False while sandboxes are left in it."""
        return files.remove(self._own(self._server))

    def sweep(self, is_alive: Callable[[str], bool]) -> list[str]:
        """Ends and removes what servers that are gone left beside this one's group.

        Gives the server ids that still have processes ending: call again for those.
        """
        entries = {entry for base in self.bases.values() for entry in files.subgroups(base)}
        servers = {entry.removeprefix(PREFIX) for entry in entries if entry.startswith(PREFIX)}
        return [
            server for server in servers if server != self._server and not is_alive(server) and not self._end(server)
        ]

    def groups(self, server: str) -> list[Group]:
        """What there is of a server's sandboxes."""
        names = {name for own in self._own(server) for name in files.subgroups(own)}
        return [self._group(server, name) for name in names]

    def _end(self, server: str) -> bool:
        groups = self.groups(server)
        for group in groups:
            group.kill()
        busy = [group for group in groups if not group.remove()]
        return not busy and files.remove(self._own(server))

    def _own(self, server: str) -> list[str]:
        return [f"{base}/{PREFIX}{server}" for base in dict.fromkeys(self.bases.values())]

    def _group(self, server: str, name: str) -> Group:
        bases = self.bases.items()
        return Group(self.version, {controller: f"{base}/{PREFIX}{server}/{name}" for controller, base in bases})

    def _settings(self, limits: Limits) -> list[tuple[str, str, dict[str, str]]]:
        """For each limit its controller and the files that set it, in order."""
        raise NotImplementedError


class Version2(Hierarchy):
    """One tree. Only a group without processes of its own may hand controllers on, so the server moves to a leaf."""

    version = 2

    def __init__(self, base: str, controllers: Iterable[str], movable: Iterable[int] = ()) -> None:
        # The one without a name: a group gathers and kills whether or not it has a controller.
        super().__init__(dict.fromkeys((*controllers, ""), base))
        self._base = base
        self._movable = set(movable)

    def claim(self, server: str) -> Hierarchy:
        own = f"{self._base}/{PREFIX}{plain(server)}"
        controllers = set(self.bases) - {""}
        try:
            if movable := self._movable & files.processes(self._base):
                leaf = f"{self._base}/{LEAF}"
                files.make(leaf)
                for process in movable:
                    files.write(f"{leaf}/cgroup.procs", str(process))
            controllers = files.hand_on(self._base, controllers)
            files.make(own)
            controllers = files.hand_on(own, controllers)
        except OSError as exc:
            return Unlimited(f"{exc.filename}: {exc.strerror}; {own_group_hint()}")
        self.bases = dict.fromkeys((*controllers, ""), self._base)
        self._server = server
        return self

    def _settings(self, limits: Limits) -> list[tuple[str, str, dict[str, str]]]:
        return [
            ("memory", "memory", {"memory.max": str(limits.memory), "memory.swap.max": "0"}),
            ("pids", "pids", {"pids.max": str(limits.pids)}),
            ("cpus", "cpu", {"cpu.max": f"{_quota(limits)} {_PERIOD}"}),
        ]


class Version1(Hierarchy):
    """A tree for each controller."""

    version = 1

    def claim(self, server: str) -> Hierarchy:
        refusals = []
        for controller, base in list(self.bases.items()):
            try:
                files.make(f"{base}/{PREFIX}{plain(server)}")
            except OSError as exc:
                refusals.append(f"{exc.filename}: {exc.strerror}")
                del self.bases[controller]
        if not self.bases:
            return Unlimited(f"{'; '.join(refusals)}; {OWN_TREES_HINT}")
        self._server = server
        return self

    def _settings(self, limits: Limits) -> list[tuple[str, str, dict[str, str]]]:
        # memsw is memory and swap together: never less than the first, which is therefore set before it. The buffers of
        # sockets, not of TCP alone, are counted apart.
        names = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.kmem.tcp.limit_in_bytes")
        memory = dict.fromkeys(names, str(limits.memory))
        return [
            ("memory", "memory", memory),
            ("pids", "pids", {"pids.max": str(limits.pids)}),
            ("cpus", "cpu", {"cpu.cfs_period_us": str(_PERIOD), "cpu.cfs_quota_us": str(_quota(limits))}),
        ]


class Unlimited(Hierarchy):
    """No control groups: every group is empty, and says that its limits are not in force."""

    def __init__(self, reason: str) -> None:
        super().__init__({})
        self.reason = reason

    def claim(self, server: str) -> Hierarchy:
        self._server = plain(server)
        return self

    def _settings(self, limits: Limits) -> list[tuple[str, str, dict[str, str]]]:
        return [("memory", "memory", {}), ("pids", "pids", {}), ("cpus", "cpu", {})]


OWN_TREES_HINT = "start the server as root, or give its user a writable group in each tree"


def own_group_hint() -> str:
    """The next step on version 2: a group that is the server's alone."""
    user = "--user " if os.getuid() else ""
    return f"start the server with: systemd-run {user}--scope --quiet -p Delegate=yes COMMAND"


def plain(name: str) -> str:
    """The name, when it is one path component that nobody else uses; else ValueError."""
    if not name or "/" in name or "\0" in name or name.startswith("."):
        raise ValueError(f"not a name for a control group: {name!r}")
    return name


def _apply(directory: str, settings: dict[str, str]) -> list[str]:
    failures = []
    for file, value in settings.items():
        try:
            files.write(f"{directory}/{file}", value)
        except FileNotFoundError:
            # Without swap accounting the file is missing, which matters only where there is swap.
            if file not in _SWAP_FILES or _has_swap():
                failures.append(f"{directory}/{file} does not exist")
        except OSError as exc:
            failures.append(f"{exc.filename}: {exc.strerror}")
    return failures


def _has_swap() -> bool:
    try:
        return len(files.read("/proc/swaps").splitlines()) > 1
    except OSError:
        return True


def _quota(limits: Limits) -> int:
    return max(_SMALLEST_QUOTA, int((limits.cpus or 0) * _PERIOD))
