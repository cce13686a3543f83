"""`runtime_configs`: options of Docker's Python client for starting containers, as settings of a profile."""

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...backends.layout import WORKDIR
from ...base.units import docker_size
from .mounts import mounts, volumes
from .overlay import ENGINES, Overlay

OF_CONTAINERS = ("user", "runtime", "volumes", "mounts")
"""Options that only engines with containers support."""
_PERIOD = 100_000
"""Default of `cpu_period`, in microseconds; `cpu_quota` is a part of it."""


def given(configs: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options that are given; None counts as not given, as in Docker's client."""
    return {name: value for name, value in (configs or {}).items() if value is not None}


def apply(overlay: Overlay, language: str, configs: Mapping[str, Any]) -> None:
    """Sets each option in the profile; raises `ValidationError` for an option that the backend does not support."""
    for name, value in configs.items():
        argument = named(name)
        if name == "cpu_period":
            if "cpu_quota" not in configs:
                raise overlay.refuse(argument, "it has no meaning without cpu_quota", "give both, or cpus")
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
                raise overlay.refuse(argument, f"{value!r} would loosen what always applies here", "leave it out")
        else:
            known = {*_MEANT, *_ALWAYS, "cpu_quota", "cpu_period", "environment", "env"}
            raise overlay.refuse(argument, f"unknown option {str(name)!r}", f"available: {', '.join(sorted(known))}")


def named(name: object) -> str:
    """An option, as errors name it."""
    return f"runtime_configs[{name!r}]"


def variables(overlay: Overlay, argument: str, value: object) -> dict[str, str]:
    """Environment variables from a dict, or from a list of NAME=value."""
    if isinstance(value, Mapping):
        return {str(name): str(text) for name, text in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        pairs = [str(pair).partition("=") for pair in value]
        if all(equals for _, equals, _ in pairs):
            return {name: text for name, _, text in pairs}
    raise overlay.refuse(argument, "it must be a dict of names and values, or a list of NAME=value")


def is_workdir(value: object) -> bool:
    """Whether a path is the working directory, however it is written."""
    return isinstance(value, str) and posixpath.normpath(value) == WORKDIR


def _number(overlay: Overlay, argument: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise overlay.refuse(argument, f"{str(value)[:40]!r} is not a number", "give one") from None


def _memory(overlay: Overlay, argument: str, value: object) -> None:
    size = docker_size(str(value))
    if size is None:
        raise overlay.refuse(argument, f"{str(value)[:40]!r} is not a size", "give one such as 512m or 1GB")
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
        raise overlay.refuse(argument, f"network {value!r} is not supported", "use none or bridge")


def _network_disabled(overlay: Overlay, argument: str, value: object) -> None:
    overlay.set(argument, "network.mode", "none" if value else "open")


def _user(overlay: Overlay, argument: str, value: object) -> None:
    overlay.only(argument, *ENGINES)
    text = str(value)
    user = text if ":" in text else f"{text}:{text}"
    if not re.fullmatch("[1-9][0-9]*:[1-9][0-9]*", user):
        why = f"{text[:40]!r} is not the number of a user other than root; give one such as 1000:1000"
        raise overlay.refuse(argument, why)
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
    "cap_drop": lambda value: True,  # all capabilities are always dropped
    "cap_add": lambda value: not value,
    "security_opt": _no_new_privileges,
    "init": bool,
    # The package always removes sandboxes and waits for them.
    "auto_remove": lambda value: True,
    "remove": lambda value: True,
    "detach": lambda value: True,
    "tty": lambda value: not value,
    "stdin_open": lambda value: True,
    "working_dir": is_workdir,
}
"""Options with a fixed value in every sandbox: a program can ask for this value, but not for another."""
