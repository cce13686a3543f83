"""What code is allowed to do. The only possible change is to allow less."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from .destinations import Destination
from .errors import InvalidArgument, PolicyDenied, quoted

NetworkMode = Literal["none", "allow", "open"]


@dataclass(frozen=True, slots=True)
class Network:
    """What a sandbox can reach outside itself: nothing, hosts by name through the server's proxy, or everything."""

    mode: NetworkMode = "none"
    destinations: tuple[Destination, ...] = ()
    """The hosts that are allowed."""


class Policy(BaseModel):
    """The limits of one sandbox and of each run in it; in every field, a larger number allows more."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    memory: int
    """Bytes of memory of all processes together, including files in the sandbox (they live in memory)."""
    cpus: float
    """Processor share: 1.5 is one processor and a half."""
    pids: int
    """Processes and threads at the same time."""
    disk: int
    """Bytes of files in the working directory; the home directory and /tmp can have as many each."""
    files: int
    """Files and folders in the working directory; the home directory and /tmp can have as many each."""
    file_size: int
    """Bytes of one file."""
    timeout: float
    """Maximum wall time of one run in seconds."""
    grace: float
    """Seconds that code has to react to an interrupt, which keeps its state, before it is killed."""
    cpu_time: float
    """Seconds of processor time that one run can use, all processes of the sandbox together."""
    output: int
    """Bytes that one run can print on both streams together."""
    network: Network = Network()

    @property
    def largest_file(self) -> int:
        """Bytes that one file can have: no more than its folder can hold, even if the file is sparse."""
        return min(self.file_size, self.disk)


LIMITS = tuple(name for name, field in Policy.model_fields.items() if field.annotation in (int, float))
"""The names of all limits: numbers that can be lowered."""

LEAST = {"memory": 8 << 20, "pids": 8}
"""The least values with which a sandbox starts."""

OF_RUN = frozenset(("timeout", "grace", "cpu_time", "output"))
"""The limits of a run. The others are limits of a sandbox and cannot change while it exists."""


_UNITS = {
    **dict.fromkeys(("memory", "disk", "file_size", "output"), "bytes"),
    **dict.fromkeys(("timeout", "grace", "cpu_time"), "seconds"),
    "cpus": "processors",
    "pids": "processes and threads",
    "files": "files and folders",
}
_TOO_LONG = 10**18


def narrow(policy: Policy, lower: Mapping[str, object], whose: str = "the profile's") -> Policy:
    """Returns the policy with some limits lowered; `whose` names the owner of the present limits in messages.

    Raises `PolicyDenied` for a value above the present limit or not above zero, `InvalidArgument` for a name that is
    not a limit or a value that is not a number; `None` leaves a limit as it is.
    """
    changed: dict[str, float] = {}
    for name, value in lower.items():
        if name not in LIMITS:
            raise InvalidArgument(f"unknown limit {quoted(str(name), 40)}", f"available: {', '.join(LIMITS)}")
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidArgument(f"{name} must be a number of {_UNITS[name]}; got {quoted(str(value), 40)}")
        limit = getattr(policy, name)
        least = LEAST.get(name)
        if not ((least or 0) <= value <= limit and value > 0):
            lowest = f"at least {least}" if least else "above 0"
            most = f"{_shown(limit)}, {whose} limit"
            raise PolicyDenied(f"{name} must be {lowest} and at most {most}; got {_shown(value)}")
        if isinstance(limit, int) and value != int(value):
            raise PolicyDenied(f"{name} must be a whole number; got {value:g}")
        changed[name] = int(value) if isinstance(limit, int) else float(value)
    # Values are checked above, and every run calls this: validating the whole policy again would cost more.
    return policy.model_copy(update=changed) if changed else policy


def _shown(value: float) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    # Python refuses to convert an int with very many digits to text, and to a float.
    return str(value) if abs(value) < _TOO_LONG else "a number out of range"
