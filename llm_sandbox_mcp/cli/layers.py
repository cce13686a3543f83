"""The layers of isolation that can be seen from inside a sandbox: `doctor` checks a live sandbox of any engine."""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..backends.base import Check, Sandbox
from ..backends.layout import HOME, PATH, WORKDIR
from ..base.policy import Policy
from ..base.units import format_size

_PARTS = ("status", "mounts", "interfaces", "namespaces", "descriptors", "environment", "memory")
_LOOK = """
exec 2>&-
cat /proc/$$/status; printf '\\036'
cat /proc/$$/mountinfo; printf '\\036'
cat /proc/$$/net/dev; printf '\\036'
for one in /proc/$$/ns/*; do readlink "$one"; done; printf '\\036'
for one in 0 1 3 4 5 6 7 8 9; do readlink /proc/$$/fd/$one; done; printf '\\036'
tr '\\000' '\\n' < /proc/$$/environ; printf '\\036'
cat /sys/fs/cgroup/memory.max || cat /sys/fs/cgroup/memory/memory.limit_in_bytes
"""
"""Prints one part after the other. Errors are not printed: a part that is missing counts as a layer that is off."""

_NAMESPACES = {
    "user": "user",
    "mnt": "mount",
    "pid": "process",
    "net": "network",
    "ipc": "ipc",
    "uts": "host name",
    "cgroup": "control group",
}
_NOT_OF_EVERY_ENGINE = ("user", "cgroup")
_MACHINES_OWN = range(0xEFFFFFF0, 0xF0000000)
"""The kernel's numbers for its initial namespaces, on every machine (include/linux/proc_ns.h)."""
_CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
_WRITABLE = (WORKDIR, HOME, "/tmp", "/dev/shm")
_OF_ANY_PROCESS = ("PATH", "HOME", "LANG", "TERM", "HOSTNAME")
_FIX = "check which setting of the profile or the engine changes this"


@dataclass(frozen=True, slots=True)
class _Mount:
    options: frozenset[str]
    kind: str
    own: Sequence[str]


async def look(sandbox: Sandbox, policy: Policy, environ: Mapping[str, str]) -> list[Check]:
    """A row for each layer, by its name in the table of layers; `environ` is the server's."""
    seen = await sandbox.run(("sh", "-c", _LOOK), {"PATH": PATH})
    return layers(
        seen.stdout.decode(errors="replace"), policy, environ, _own_namespaces(), of_engine=bool(sandbox.image)
    )


def layers(text: str, policy: Policy, environ: Mapping[str, str], own: str, *, of_engine: bool) -> list[Check]:
    """A row for each layer, from the text that a look at the sandbox printed.

    `own` are the server's namespaces; `of_engine` says that an engine made the sandbox's.
    """
    parts = dict(zip(_PARTS, text.split("\x1e"), strict=False))
    status = dict(line.split(":\t", 1) for line in parts["status"].splitlines() if ":\t" in line)
    mounts = dict(_mounts(parts.get("mounts", "")))
    return [
        _namespaces(parts.get("namespaces", ""), own, _NOT_OF_EVERY_ENGINE if of_engine else ()),
        _on("capabilities", {status.get(name, "").strip() for name in _CAPABILITIES} == {"0" * 16}, "none", "some"),
        _on("gaining privileges", status.get("NoNewPrivs") == "1", "never", "set-uid programs can gain privileges"),
        _on("system calls", status.get("Seccomp") == "2", "filtered", "no filter"),
        _on("user of the machine", "0" not in status.get("Uid", "0").split(), "not root", "root"),
        _on("root folder", "ro" in mounts.get("/", _Mount(frozenset(), "", ())).options, "read-only", "can be written"),
        _writable(mounts),
        _environment(parts.get("environment", ""), environ),
        _terminals(mounts),
        _descriptors(parts.get("descriptors", "")),
        *_memory(parts.get("memory", ""), policy),
        _network(parts.get("interfaces", ""), policy),
    ]


def _on(name: str, on: bool, detail: str, otherwise: str) -> Check:
    return Check(name, "ok", detail) if on else Check(name, "degraded", otherwise, _FIX)


def _own_namespaces() -> str:
    return "\n".join(os.readlink(place) for place in Path("/proc/self/ns").iterdir())


def _namespaces(theirs: str, own: str, optional: Collection[str]) -> Check:
    others = {*own.splitlines(), *(f"{name}:[{number}]" for name in _NAMESPACES for number in _MACHINES_OWN)}
    found = {line.partition(":")[0] for line in theirs.splitlines() if line not in others}
    names = ", ".join(label for name, label in _NAMESPACES.items() if name in found)
    shared = {name: label for name, label in _NAMESPACES.items() if name not in found}
    with_others = f"{', '.join(shared.values())} shared with others"
    return _on("namespaces", shared.keys() <= {*optional}, f"{names}; {with_others}" if shared else names, with_others)


def _mounts(text: str) -> Iterator[tuple[str, _Mount]]:
    for line in text.splitlines():
        here, _, there = line.partition(" - ")
        kind, _, own = there.split(maxsplit=2)
        yield here.split()[4], _Mount(frozenset(here.split()[5].split(",")), kind, own.split(","))


def _writable(mounts: Mapping[str, _Mount]) -> Check:
    sized = [
        place
        for place in _WRITABLE
        if place in mounts
        and mounts[place].kind == "tmpfs"
        and any(word.startswith("size=") for word in mounts[place].own)
    ]
    unsized = [place for place in _WRITABLE if place not in sized]
    limited = f"{', '.join(sized)}, each with a size limit"
    return _on("writable folders", not unsized, limited, f"no size limit: {', '.join(unsized)}")


def _environment(text: str, environ: Mapping[str, str]) -> Check:
    theirs = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    leaked = sorted(
        name for name, value in theirs.items() if environ.get(name) == value and name not in _OF_ANY_PROCESS
    )
    return _on("environment", not leaked, "nothing of the server's", f"copied from the server: {', '.join(leaked)}")


def _terminals(mounts: Mapping[str, _Mount]) -> Check:
    most = [
        word
        for mount in (mounts.get("/dev/pts"),)
        if mount is not None
        for word in mount.own
        if word.startswith("max=")
    ]
    if not most:  # the engine decides this; there is no fix
        return Check("pseudo-terminals", "degraded", "shared with the machine")
    return Check("pseudo-terminals", "ok", f"{''.join(most)[4:]} of its own")


def _descriptors(text: str) -> Check:
    strange = sorted(line for line in text.splitlines() if not re.fullmatch(r"pipe:(\[\d+\])?", line))
    return _on("descriptors", not strange and bool(text.strip()), "pipes to the server", f"also: {', '.join(strange)}")


def _memory(text: str, policy: Policy) -> Iterator[Check]:
    """A row only if the sandbox sees its control group; bubblewrap's does not, and has a separate row for limits."""
    if words := text.split():
        bounded = words[0].isdigit() and int(words[0]) <= policy.memory
        yield _on(
            "memory", bounded, f"{format_size(policy.memory)}, by a control group", f"{words[0]}, by its control group"
        )


def _network(text: str, policy: Policy) -> Check:
    found = sorted({line.partition(":")[0].strip() for line in text.splitlines() if ":" in line})
    closed = found == ["lo"] or (policy.network.mode == "open" and bool(found))
    return _on("network", closed, f"devices: {', '.join(found)}", f"more than the profile opens: {', '.join(found)}")
