"""Limits memory, processes and CPUs with control groups: version 2, version 1, or none with the reason.

    hierarchy = detect().claim(server_id)
    group = hierarchy.create(sandbox_id, Limits(memory=2**29, pids=64, cpus=1.0))
    files.join(group.join_paths)   # in the child, before it gives up its privileges

The groups of sandboxes are below the server's own group: `llm-sandbox-mcp-<server id>/<sandbox id>`. The kernel's
interface is described in https://docs.kernel.org/admin-guide/cgroup-v2.html and
https://docs.kernel.org/admin-guide/cgroup-v1/. Imports only `os`: the launcher, which imports this, must start fast.
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
"""The group to which a server on version 2 moves itself; the colon distinguishes it from every `PREFIX` group."""

_PERIOD = 100_000
_SMALLEST_QUOTA = 1_000
"""Microseconds: the kernel refuses a CPU quota below 1 ms."""
_SWAP_FILES = ("memory.swap.max", "memory.memsw.limit_in_bytes")


class Limits:
    """The most that one sandbox may use; None means that the sandbox has no such limit of its own."""

    __slots__ = ("cpus", "memory", "pids")

    def __init__(self, memory: int | None = None, pids: int | None = None, cpus: float | None = None) -> None:
        self.memory = memory
        """Bytes of memory; swap is not used."""
        self.pids = pids
        """Processes and threads together."""
        self.cpus = cpus
        """Number of CPUs, which may be a fraction such as 0.5."""


class Hierarchy:
    """The place where groups can be made: one of Version2, Version1, Unlimited."""

    version = 0
    reason = step = ""
    """Why limits cannot be set, and what to do about it; empty if they can be set."""

    def __init__(self, bases: dict[str, str]) -> None:
        self.bases = bases
        """The parent of the server's own group, for each controller."""
        self._server = ""
        self._lacking: dict[str, str] | None = None
        """The limits that cannot be enforced here; None while that is not known yet."""

    def claim(self, server: str) -> Hierarchy:
        """Makes the server's group; returns self, or Unlimited if the kernel refused."""
        raise NotImplementedError

    def create(self, name: str, limits: Limits) -> Group:
        """Makes a group below the claimed one.

        OSError if it cannot be made, also for a name that is in use, and if a limit cannot be set that worked in
        `try_limits`: nothing else would enforce that limit.
        """
        if not self._server:
            raise RuntimeError("call claim(server_id) before create()")
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
        """Makes a trial group, and returns the limits that groups cannot enforce here, each with the reason.

        These include `cpu_time`, which groups count and do not limit, if it is not counted here.
        """
        group = self.create("trial", widest)
        try:
            uncounted = {"cpu_time": self.reason or "it is not counted"} if group.cpu_usage() is None else {}
            self._lacking = {**group.degraded, **uncounted}
            return self._lacking
        finally:
            group.remove()

    def close(self) -> bool:
        """Removes the server's group; False while sandboxes are left in it."""
        return files.remove(self._own(self._server))

    def sweep(self, is_alive: Callable[[str], bool]) -> list[str]:
        """Ends and removes the groups of servers that are gone, next to this server's group.

        Returns the ids of servers whose processes have not all ended yet: call again for those.
        """
        entries = {entry for base in self.bases.values() for entry in files.subgroups(base)}
        servers = {entry.removeprefix(PREFIX) for entry in entries if entry.startswith(PREFIX)}
        return [
            server for server in servers if server != self._server and not is_alive(server) and not self._end(server)
        ]

    def groups(self, server: str) -> list[Group]:
        """The existing groups of a server's sandboxes."""
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
        """Each limit with its controller and the files that set it, in order."""
        raise NotImplementedError


class Version2(Hierarchy):
    """One tree for all controllers. Only a group that contains no processes itself may pass controllers on to
    subgroups, so the server moves itself to a leaf."""

    version = 2

    def __init__(self, base: str, controllers: Iterable[str], movable: Iterable[int] = ()) -> None:
        # The empty name: a group collects and kills processes even without a controller.
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
            return Unlimited(f"{exc.filename}: {exc.strerror}", own_group_hint())
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
            return Unlimited("; ".join(refusals), OWN_TREES_HINT)
        self._server = server
        return self

    def _settings(self, limits: Limits) -> list[tuple[str, str, dict[str, str]]]:
        # memsw limits memory and swap together. It cannot be less than the memory limit, so that is set first. Socket
        # buffers, not only those of TCP, are counted separately, by the third file.
        names = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.kmem.tcp.limit_in_bytes")
        memory = dict.fromkeys(names, str(limits.memory))
        return [
            ("memory", "memory", memory),
            ("pids", "pids", {"pids.max": str(limits.pids)}),
            ("cpus", "cpu", {"cpu.cfs_period_us": str(_PERIOD), "cpu.cfs_quota_us": str(_quota(limits))}),
        ]


class Unlimited(Hierarchy):
    """No control groups: groups have no directories, and list all their limits as not in force."""

    def __init__(self, reason: str, step: str) -> None:
        super().__init__({})
        self.reason, self.step = reason, step

    def claim(self, server: str) -> Hierarchy:
        self._server = plain(server)
        return self

    def _settings(self, limits: Limits) -> list[tuple[str, str, dict[str, str]]]:
        return [("memory", "memory", {}), ("pids", "pids", {}), ("cpus", "cpu", {})]


OWN_TREES_HINT = "start the server as root, or give its user a writable group for each controller"


def own_group_hint() -> str:
    """The next step on version 2: a group that only the server uses."""
    user = "--user " if os.getuid() else ""
    return f"start the server with: systemd-run {user}--scope --quiet -p Delegate=yes COMMAND"


def plain(name: str) -> str:
    """The name if it is a single path component that can name a group; else ValueError."""
    if not name or "/" in name or "\0" in name or name.startswith("."):
        raise ValueError(f"not a name for a control group: {name!r}")
    return name


def _apply(directory: str, settings: dict[str, str]) -> list[str]:
    failures = []
    for file, value in settings.items():
        try:
            files.write(f"{directory}/{file}", value)
        except FileNotFoundError:
            # Without swap accounting the file is missing, which matters only if the machine has swap.
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
