"""The environment variables of LLM Sandbox's MCP server, as keys of a profile.

They change only the default profile. A profile that the operator names takes precedence, since it can express more.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ..backends.kubernetes.settings import NAMESPACE
from ..base.errors import quoted
from ..base.messages import Problem, joined
from ..base.policy import LEAST
from ..base.units import docker_size, format_size, parse_size

_FIRST = {"SANDBOX_MEMORY": "SANDBOX_MEM_LIMIT", "SANDBOX_CPUS": "SANDBOX_CPU_COUNT"}
"""Two variables with the same meaning: the value names the one that takes precedence, as in LLM Sandbox."""

_BACKENDS = {"docker": "docker", "podman": "podman", "kubernetes": "kubernetes", "bubblewrap": "embedded"}
_ABSENT = {
    "micromamba": 'set backend.name = "docker", containers.image and containers.prefix in a profile',
    "nsjail": 'set backend.name = "embedded" in a profile, which needs no daemon either',
    "wsl2-bubblewrap": "run this server inside of that distribution, with BACKEND=bubblewrap",
    "windows-mxc": "run this server on Linux, such as inside of WSL2",
}
_NETWORKS = {"none": "none", "bridge": "open", "default": "open"}
_YES, _NO = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_NO_GAIN = ("no-new-privileges", "no-new-privileges:true", "no-new-privileges=true")


@dataclass(frozen=True, slots=True)
class OldVariable:
    """A variable that is set, and its effect."""

    name: str
    cause: str
    step: str
    """What to do instead."""
    key: str = ""
    """The key of the profile, such as `limits.memory`; empty if nothing changes."""
    value: object = None
    """The value as in a profile."""
    refused: bool = False
    """Whether it asks for something that is not available, so that the server must not start."""

    @property
    def problem(self) -> Problem:
        """Cause and next step, for an error."""
        return Problem(f"{self.name}{'' if self.refused else ' is deprecated'}: {self.cause}", self.step)

    @property
    def line(self) -> str:
        """Cause and next step, for a log."""
        return joined(*self.problem)


def old_variables(environ: Mapping[str, str], *, named: bool) -> tuple[OldVariable, ...]:
    """The effect of each variable that is set; `named`: whether a profile is named, so that all are ignored."""
    found = {name: value for name in _VARIABLES if (value := environ.get(name, "").strip())}
    backend = found.get("BACKEND", "")
    if backend != "kubernetes":
        # Other programs use this name too, and in LLM Sandbox it had no meaning for other backends either.
        found.pop("NAMESPACE", None)
    if named:
        if backend not in {*_BACKENDS, *_ABSENT}:
            found.pop("BACKEND", None)
        return tuple(map(_overruled_by_profile, found))
    variables = [_overruled(name, found) or _VARIABLES[name][0](name, value) for name, value in found.items()]
    return (*variables, *_podman(backend, environ))


def settings_of(variables: tuple[OldVariable, ...]) -> Mapping[str, Mapping[str, object]]:
    """The settings of the variables, as tables of a profile; refused variables set nothing."""
    found: dict[str, dict[str, object]] = {}
    for variable in variables:
        if variable.key:
            table, key = variable.key.split(".")
            found.setdefault(table, {})[key] = variable.value
    return found


def _overruled_by_profile(name: str) -> OldVariable:
    _, key = _VARIABLES[name]
    applies = f"{key} of the named profile" if key else "the named profile"
    return OldVariable(name, f"it is ignored, {applies} applies", "unset it")


def _overruled(name: str, found: Mapping[str, str]) -> OldVariable | None:
    if (first := _FIRST.get(name, "")) not in found:
        return None
    return OldVariable(name, f"it is ignored, because {first} is set", "unset it")


def _podman(backend: str, environ: Mapping[str, str]) -> Iterator[OldVariable]:
    # Podman's Python package also finds its service by Docker's variable, and existing client entries rely on that.
    host = environ.get("DOCKER_HOST", "")
    if backend == "podman" and host and not environ.get("CONTAINER_HOST"):
        yield _set("DOCKER_HOST", "it is used as the address of Podman's service", "podman.host", host, "to it")


def _set(name: str, cause: str, key: str, value: object, written: str = "") -> OldVariable:
    return OldVariable(name, cause, f"set {key} {written or f'= {json.dumps(value)}'} in a profile", key, value)


def _applied(name: str, text: str, value: object) -> OldVariable:
    _, key = _VARIABLES[name]
    return _set(name, f"{quoted(text)} is applied", key, value)


def _refused(name: str, text: str, why: str, step: str = "unset it") -> OldVariable:
    return OldVariable(name, f"{quoted(text)} {why}", step, refused=True)


def _backend(name: str, text: str) -> OldVariable:
    if text in _BACKENDS:
        return _applied(name, text, _BACKENDS[text])
    if text in _ABSENT:
        return _refused(name, text, "is not a backend here", _ABSENT[text])
    # LLM Sandbox's server did not start with such a value, so it belongs to another program that uses the same name.
    # The value is not logged, because it can be a secret of that program.
    known = ", ".join(_BACKENDS)
    return OldVariable(name, f"its value is none of {known}, so it is ignored", "set backend.name in a profile")


def _namespace(name: str, text: str) -> OldVariable:
    if not re.fullmatch(NAMESPACE, text):
        return _refused(name, text, "is not a valid namespace", "give lower case letters, digits and hyphens")
    return _applied(name, text, text)


def _network(name: str, text: str) -> OldVariable:
    if text in _NETWORKS:
        return _applied(name, text, _NETWORKS[text])
    known = ", ".join(_NETWORKS)
    return _refused(name, text, f"is none of {known}", "set network.mode and network.domains in a profile")


def _memory(name: str, text: str) -> OldVariable:
    written = docker_size(text)
    if written is None:
        return _refused(name, text, "is not a size", 'give one such as "512m" or "4g"')
    if parse_size(written) < LEAST["memory"]:
        return _refused(name, text, "is too little", f"give {format_size(LEAST['memory'])} or more")
    return _applied(name, text, written)


def _cpus(name: str, text: str) -> OldVariable:
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not math.isfinite(share) or share <= 0:
        return _refused(name, text, "is not a number above zero", 'give one such as "1.5"')
    return _applied(name, text, share)


def _always(wanted: bool, fact: str) -> Callable[[str, str], OldVariable]:
    """A reader for a switch whose value is fixed; `wanted` is that value."""

    def read(name: str, text: str) -> OldVariable:
        value = text.lower()
        if value in (_YES if wanted else _NO):
            return OldVariable(name, fact, "unset it")
        if value in (_NO if wanted else _YES):
            return _refused(name, text, f"is not available: {fact}")
        return _refused(name, text, "is neither true nor false")

    return read


def _dropped(name: str, _text: str) -> OldVariable:
    return OldVariable(name, "sandboxes never have any capabilities", "unset it")


def _options(name: str, text: str) -> OldVariable:
    others = [option for part in text.split(",") if (option := part.strip()) and option.lower() not in _NO_GAIN]
    if others:
        return _refused(name, others[0], "is not available: the isolation of sandboxes cannot be changed")
    return OldVariable(name, "sandboxes never gain privileges", "unset it")


_VARIABLES: Mapping[str, tuple[Callable[[str, str], OldVariable], str]] = {
    "BACKEND": (_backend, "backend.name"),
    "NAMESPACE": (_namespace, "kubernetes.namespace"),
    "COMMIT_CONTAINER": (_always(False, "no session gets into an image unless a program asks for it"), ""),
    "KEEP_TEMPLATE": (_always(True, "images stay when a session ends"), ""),
    "SANDBOX_NETWORK_MODE": (_network, "network.mode"),
    "SANDBOX_READ_ONLY": (_always(True, "only /sandbox, /home, /tmp and /dev/shm can be written"), ""),
    "SANDBOX_MEM_LIMIT": (_memory, "limits.memory"),
    "SANDBOX_MEMORY": (_memory, "limits.memory"),
    "SANDBOX_CPU_COUNT": (_cpus, "limits.cpus"),
    "SANDBOX_CPUS": (_cpus, "limits.cpus"),
    "SANDBOX_CAP_DROP": (_dropped, ""),
    "SANDBOX_SECURITY_OPT": (_options, ""),
    "SANDBOX_PRIVILEGED": (_always(False, "sandboxes never have privileges"), ""),
}
"""The reader of each variable, and the profile key with the same meaning; empty if the setting cannot be changed."""
