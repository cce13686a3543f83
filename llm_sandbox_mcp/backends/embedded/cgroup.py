"""One control group: makes, counts, kills and removes it. Imported by the launcher, which must start fast."""

from __future__ import annotations

import os

from llm_sandbox_mcp.backends.counters import Counters
from llm_sandbox_mcp.backends.embedded import cgroup_files as files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    _Number = TypeVar("_Number", int, "float | None")


class Group:
    """The control group of one sandbox: one directory on version 2, one for each controller on version 1."""

    __slots__ = ("_directories", "_refused", "by_controller", "degraded", "join_paths", "version")

    def __init__(self, version: int, by_controller: dict[str, str]) -> None:
        self.version = version
        self.by_controller = by_controller
        """The directory of each controller's files."""
        self.degraded: dict[str, str] = {}
        """The limits that are not in force, each with the reason."""
        self._directories = list(dict.fromkeys(by_controller.values()))
        # On version 1 a thread moves itself through "tasks": that avoids a kernel lock that blocks all forks on the
        # machine, at times for 6 ms.
        entrance = "tasks" if version == 1 else "cgroup.procs"
        self.join_paths = [f"{directory}/{entrance}" for directory in self._directories]
        """Files to which a single-threaded process writes "0" to join the group."""
        self._refused: int | None = None

    def make(self) -> None:
        """Makes the directories, all or none. OSError if that fails, also for a name that is in use."""
        for position, directory in enumerate(self._directories):
            try:
                os.mkdir(directory)
            except OSError:
                files.remove(self._directories[:position])
                raise

    def oom_kills(self) -> int:
        """How many processes the kernel has killed because memory ran out."""
        return self._count(Counters.oom_kills)

    def pids_refused(self) -> int:
        """How often the limit on processes has refused a fork."""
        return self._count(Counters.pids_refused) if self._refused is None else self._refused

    def cpu_usage(self) -> float | None:
        """Seconds of CPU time; None if it is not counted."""
        return self._count(Counters.cpu)

    def processes(self) -> list[int]:
        """The processes in the group, as ids in the reader's PID namespace."""
        return sorted(set[int]().union(*map(files.processes, self._directories)))

    def kill(self) -> bool:
        """Sends SIGKILL to all processes in the group and keeps them from forking; True when none is left.

        Killed processes take a moment to end: call again until `remove` returns True.
        """
        if not self._kill_at_once():
            # A limit of 0 keeps forks from outrunning the signals. The refusals that it causes are not counted as the
            # sandbox's, so the count is read before.
            if (pids := self.by_controller.get("pids")) is not None and self._refused is None:
                try:
                    self._refused = self.pids_refused()
                    files.write(f"{pids}/pids.max", "0")
                except OSError:
                    pass
            for process in self.processes():
                self._kill_one(process)
        return not self.processes()

    def remove(self) -> bool:
        """Removes the group; False while a process in it has not ended yet."""
        return files.remove(self._directories)

    def _kill_at_once(self) -> bool:
        if self.version == 2:
            try:
                files.write(f"{self._directories[0]}/cgroup.kill", "1")
                return True
            except OSError:
                pass  # older than Linux 5.14, or the group is gone
        return False

    def _kill_one(self, process: int) -> None:
        """Kills a process of the group. Its id may have been reused since it was read: a descriptor first pins the
        process, and then it is checked that the process is still in the group."""
        import signal  # imported late: its enumerations cost a starting process more than the rest of this module

        descriptor = None
        try:
            descriptor = os.pidfd_open(process)
        except ProcessLookupError:
            return
        except OSError:  # older than Linux 5.3
            pass
        try:
            groups = files.read(f"/proc/{process}/cgroup").splitlines()
            if not any(group.endswith(self._own_path()) for group in groups):
                return
            if descriptor is None:
                os.kill(process, signal.SIGKILL)
            else:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            pass
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _own_path(self) -> str:
        return "/" + "/".join(self._directories[0].split("/")[-2:])

    def _count(self, count: Callable[[Counters], _Number]) -> _Number:
        counters = Counters(self.version, self.by_controller)
        try:
            return count(counters)
        finally:
            counters.close()
