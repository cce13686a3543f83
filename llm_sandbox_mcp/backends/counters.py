"""How often a control group ran into its limits, read from outside. Imports only `os`: the launcher must start fast."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST = 4096
"""Bytes to read of a counter file; more than any of them has."""


class Counters:
    """The counters of one group, read through descriptors that stay open: every run reads them twice."""

    def __init__(self, version: int, by_controller: Mapping[str, str]) -> None:
        """Takes the group's directory for each controller; OSError if a directory has no such counter file."""
        oom = "memory.events" if version == 2 else "memory.oom_control"
        self._memory = self._pids = self._cpu = -1
        # Version 2 counts CPU time in every group, whichever controllers the group has.
        cpu = next(iter(by_controller.values()), None) if version == 2 else by_controller.get("cpuacct")
        try:
            self._memory = _open(by_controller.get("memory"), oom)
            self._pids = _open(by_controller.get("pids"), "pids.events")
            self._cpu = _open(cpu, "cpu.stat" if version == 2 else "cpuacct.usage")
        except OSError:
            self.close()
            raise

    def oom_kills(self) -> int:
        """How many processes the kernel has killed because memory ran out; OSError when the group is gone."""
        return _count(self._memory, b"oom_kill")

    def pids_refused(self) -> int:
        """How often the limit on processes has refused a fork; OSError when the group is gone."""
        return _count(self._pids, b"max")

    def cpu(self) -> float | None:
        """Seconds of processor time so far; None if it is not counted, OSError when the group is gone."""
        if self._cpu < 0:
            return None
        text = os.pread(self._cpu, _LONGEST, 0)
        # Version 1 has a single number, in nanoseconds.
        return int(text) / 1e9 if text[:1].isdigit() else _value(text, b"usage_usec") / 1e6

    def close(self) -> None:
        """Closes the files; all counts are 0 or None afterwards."""
        for descriptor in (self._memory, self._pids, self._cpu):
            if descriptor >= 0:
                os.close(descriptor)
        self._memory = self._pids = self._cpu = -1


def _open(directory: str | None, file: str) -> int:
    return -1 if directory is None else os.open(f"{directory}/{file}", os.O_RDONLY | os.O_CLOEXEC)


def _count(descriptor: int, key: bytes) -> int:
    """The number after a key; 0 if the group does not have the controller."""
    return 0 if descriptor < 0 else _value(os.pread(descriptor, _LONGEST, 0), key)


def _value(text: bytes, key: bytes) -> int:
    """The number after a key; 0 if an older kernel has no such line."""
    for line in text.splitlines():
        name, _, value = line.partition(b" ")
        if name == key:
            return int(value)
    return 0
