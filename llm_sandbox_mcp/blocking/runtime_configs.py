"""`runtime_configs`: how containers are started, by the names of Docker's Python client, as settings of a profile."""

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..backends.layout import WORKDIR
from ..units import docker_size
from .mounts import mounts, volumes
from .overlay import ENGINES, Overlay

OF_CONTAINERS = ("user", "runtime", "volumes", "mounts")
"""What only engines with containers can do."""
_PERIOD = 100_000
"""Microseconds: what `cpu_quota` is of, unless said otherwise."""


def given(configs: Mapping[str, Any] | None) -> dict[str, Any]:
    """What is said; None stands for nothing, as Docker's client takes it."""
    return {name: value for name, value in (configs or {}).items() if value is not None}


def apply(overlay: Overlay, language: str, configs: Mapping[str, Any]) -> None:
    """Lays each of them over the profile; raises `ValidationError` for one that the backend cannot do."""
    for name, value in configs.items():
        argument = named(name)
        if name == "cpu_period":
            if "cpu_quota" not in configs:
                raise overlay.refuse(argument, "it says nothing without cpu_quota: give both, or cpus")
        elif name == "cpu_quota":
            period = _number(overlay, named("cpu_period"), configs.get("cpu_period", _PERIOD))
            if not period > 0:
                raise overlay.refuse(named("cpu_period"), "it must be above zero")
            overlay.set(argument, "limits.cpus", _number(overlay, argument, value) / period)
        elif name in ("environment", "env"):
            overlay.environment(argument, language, variables(overlay, argument, value))
        elif name in _MEANT:
            _MEANT[name](overlay, argument, value)
        elif name in _ALWAYS:
            if not _ALWAYS[name](value):
                raise overlay.refuse(argument, f"{value!r} would take away what always holds here: leave it out")
        else:
            known = {*_MEANT, *_ALWAYS, "cpu_quota", "cpu_period", "environment", "env"}
            raise overlay.refuse(argument, f"it is not known: there are {', '.join(sorted(known))}")


def named(name: object) -> str:
    """One of them, as errors name it."""
    return f"runtime_configs[{name!r}]"


def variables(overlay: Overlay, argument: str, value: object) -> dict[str, str]:
    """Environment variables from a table, or from a list of NAME=value."""
    if isinstance(value, Mapping):
        return {str(name): str(text) for name, text in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        pairs = [str(pair).partition("=") for pair in value]
        if all(equals for _, equals, _ in pairs):
            return {name: text for name, _, text in pairs}
    raise overlay.refuse(argument, "it must be a table of names and values, or a list of NAME=value")


def is_workdir(value: object) -> bool:
    """Whether it is the folder that code works in, however it is written."""
    return isinstance(value, str) and posixpath.normpath(value) == WORKDIR


def _number(overlay: Overlay, argument: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise overlay.refuse(argument, f"{str(value)[:40]!r} is no number") from None


def _memory(overlay: Overlay, argument: str, value: object) -> None:
    size = docker_size(str(value))
    if size is None:
        raise overlay.refuse(argument, f"{str(value)[:40]!r} is no size, such as 512m or 1GB")
    overlay.set(argument, "limits.memory", size)


def _cpus(overlay: Overlay, argument: str, value: Any) -> None:
    overlay.set(argument, "limits.cpus", _number(overlay, argument, value))


def _nano_cpus(overlay: Overlay, argument: str, value: Any) -> None:
    overlay.set(argument, "limits.cpus", _number(overlay, argument, value) / 1e9)


def _pids(overlay: Overlay, argument: str, value: object) -> None:
    overlay.set(argument, "limits.pids", value)


def _network(overlay: Overlay, argument: str, value: object) -> None:
    if value == "none":
        overlay.set(argument, "network.mode", "none")
    elif value in ("bridge", "default"):
        overlay.set(argument, "network.mode", "open")
    else:
        raise overlay.refuse(argument, f"{value!r} is no network that sandboxes get: none or bridge")


def _network_disabled(overlay: Overlay, argument: str, value: object) -> None:
    overlay.set(argument, "network.mode", "none" if value else "open")


def _user(overlay: Overlay, argument: str, value: object) -> None:
    overlay.only(argument, *ENGINES)
    text = str(value)
    user = text if ":" in text else f"{text}:{text}"
    if not re.fullmatch("[1-9][0-9]*:[1-9][0-9]*", user):
        raise overlay.refuse(argument, f"{text[:40]!r} is no user and group by their numbers, never root: 1000:1000")
    overlay.set(argument, "containers.user", user)


def _runtime(overlay: Overlay, argument: str, value: object) -> None:
    overlay.only(argument, *ENGINES)
    overlay.set(argument, "containers.runtime", value)


def _no_new_privileges(value: object) -> bool:
    options = [value] if isinstance(value, str) else value
    wanted = {"no-new-privileges", "no-new-privileges:true", "no-new-privileges=true"}
    return isinstance(options, Iterable) and wanted.issuperset(options)


_MEANT: Mapping[str, Callable[[Overlay, str, Any], None]] = {
    "mem_limit": _memory,
    "memory": _memory,
    "cpus": _cpus,
    "cpu_count": _cpus,
    "nano_cpus": _nano_cpus,
    "pids_limit": _pids,
    "network_mode": _network,
    "network_disabled": _network_disabled,
    "user": _user,
    "runtime": _runtime,
    "volumes": volumes,
    "mounts": mounts,
}

_ALWAYS: Mapping[str, Callable[[Any], bool]] = {
    "privileged": lambda value: not value,
    "read_only": bool,
    "cap_drop": lambda value: True,  # all are
    "cap_add": lambda value: not value,
    "security_opt": _no_new_privileges,
    "init": bool,
    # Sandboxes are removed and waited for in any case, by the package.
    "auto_remove": lambda value: True,
    "remove": lambda value: True,
    "detach": lambda value: True,
    "tty": lambda value: not value,
    "stdin_open": lambda value: True,
    "working_dir": is_workdir,
}
"""What is so in every sandbox: each may be asked for, and none may be turned off."""
