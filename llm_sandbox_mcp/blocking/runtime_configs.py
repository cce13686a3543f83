"""`runtime_configs`: how containers are started, by the names of Docker's Python client, as settings of a profile."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..units import docker_size
from .overlay import ENGINES, Overlay

_LABELS = frozenset("zZ")
"""Modes for SELinux, which the engine's own settings decide here."""
_PERIOD = 100_000
"""Microseconds: what `cpu_quota` is of, unless said otherwise."""


def apply(overlay: Overlay, language: str, configs: Mapping[str, Any]) -> None:
    """Lays each of them over the profile; raises `ValidationError` for one that the backend cannot do."""
    for name, value in configs.items():
        parameter = f"runtime_configs[{name!r}]"
        if name == "cpu_period":
            if "cpu_quota" not in configs:
                raise overlay.refuse(parameter, "it says nothing without cpu_quota: give both, or cpus")
        elif name == "cpu_quota":
            period = _number(overlay, "runtime_configs['cpu_period']", configs.get("cpu_period", _PERIOD))
            if not period > 0:
                raise overlay.refuse("runtime_configs['cpu_period']", "it must be above zero")
            overlay.set("limits", "cpus", _number(overlay, parameter, value) / period)
        elif name in ("environment", "env"):
            overlay.language(language, "env", variables(overlay, parameter, value))
        elif name in _MEANT:
            _MEANT[name](overlay, parameter, value)
        elif name in _ALWAYS:
            if not _ALWAYS[name](value):
                raise overlay.refuse(parameter, f"{value!r} would take away what always holds here: leave it out")
        else:
            raise overlay.refuse(parameter, f"it is not known: there are {', '.join(sorted({*_MEANT, *_ALWAYS}))}")


def variables(overlay: Overlay, parameter: str, value: object) -> dict[str, str]:
    """Environment variables from a table, or from a list of NAME=value."""
    if isinstance(value, Mapping):
        return {str(name): str(text) for name, text in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        pairs = [str(pair).partition("=") for pair in value]
        if all(equals for _, equals, _ in pairs):
            return {name: text for name, _, text in pairs}
    raise overlay.refuse(parameter, "it must be a table of names and values, or a list of NAME=value")


def bind(overlay: Overlay, parameter: str, text: object) -> None:
    """A folder of the engine's machine as `source:target` or `source:target:mode`."""
    source, _, rest = str(text).partition(":")
    target, _, mode = rest.partition(":")
    mount(overlay, parameter, source, target, writable=_writable(overlay, parameter, mode or "rw"))


def _writable(overlay: Overlay, parameter: str, mode: object) -> bool:
    """Whether code may write to what is mounted in this mode, such as `ro,z`."""
    words = set(str(mode).split(","))
    if unknown := words - {"ro", "rw"} - _LABELS:
        raise overlay.refuse(parameter, f"{min(unknown)!r} is no mode that there is: ro, rw")
    return "ro" not in words


def mount(overlay: Overlay, parameter: str, source: object, target: object, *, writable: bool) -> None:
    """A folder of the engine's machine that the code sees."""
    overlay.only(parameter, *ENGINES)
    overlay.extend("containers", "mounts", [{"source": str(source), "target": str(target), "writable": writable}])


def _number(overlay: Overlay, parameter: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise overlay.refuse(parameter, f"{str(value)[:40]!r} is no number") from None


def _memory(overlay: Overlay, parameter: str, value: object) -> None:
    overlay.set("limits", "memory", docker_size(str(value)) or value)


def _cpus(overlay: Overlay, parameter: str, value: Any) -> None:
    overlay.set("limits", "cpus", _number(overlay, parameter, value))


def _nano_cpus(overlay: Overlay, parameter: str, value: Any) -> None:
    overlay.set("limits", "cpus", _number(overlay, parameter, value) / 1e9)


def _pids(overlay: Overlay, parameter: str, value: object) -> None:
    overlay.set("limits", "pids", value)


def _network(overlay: Overlay, parameter: str, value: object) -> None:
    if value == "none":
        overlay.set("network", "mode", "none")
    elif value in ("bridge", "default"):
        overlay.set("network", "mode", "open")
    else:
        raise overlay.refuse(parameter, f"{value!r} is no network that sandboxes get: none or bridge")


def _network_disabled(overlay: Overlay, parameter: str, value: object) -> None:
    overlay.set("network", "mode", "none" if value else "open")


def _user(overlay: Overlay, parameter: str, value: object) -> None:
    overlay.only(parameter, *ENGINES)
    text = str(value)
    overlay.set("containers", "user", text if ":" in text else f"{text}:{text}")


def _runtime(overlay: Overlay, parameter: str, value: object) -> None:
    overlay.only(parameter, *ENGINES)
    overlay.set("containers", "runtime", value)


def _volumes(overlay: Overlay, parameter: str, value: Any) -> None:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise overlay.refuse(parameter, "it must be a table by source, or a list of source:target:mode")
    if not isinstance(value, Mapping):
        for text in value:
            bind(overlay, parameter, text)
        return
    for source, how in value.items():
        if not isinstance(how, Mapping):
            how = {"bind": how}
        if "bind" not in how:
            raise overlay.refuse(parameter, f"{str(source)!r} has no 'bind', the place in the sandbox")
        writable = _writable(overlay, parameter, how.get("mode", "rw"))
        mount(overlay, parameter, source, how["bind"], writable=writable)


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
    "volumes": _volumes,
}

_ALWAYS: Mapping[str, Callable[[Any], bool]] = {
    "privileged": lambda value: not value,
    "read_only": bool,
    "cap_drop": lambda value: True,  # all are
    "cap_add": lambda value: not value,
    "security_opt": lambda value: all(str(option).startswith("no-new-privileges") for option in value),
    "init": bool,
    "auto_remove": bool,
    "remove": bool,
    "detach": bool,
    "tty": lambda value: not value,
    "stdin_open": lambda value: True,
    "working_dir": lambda value: value == "/sandbox",
}
"""What is so in every sandbox: each may be asked for, and none may be turned off."""
