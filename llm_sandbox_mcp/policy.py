"""What code may do, and the one way to change it: downwards."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from .destinations import Destination
from .errors import InvalidArgument, PolicyDenied, quoted


@dataclass(frozen=True, slots=True)
class Network:
    """What a sandbox reaches beside itself: nothing, hosts by name through the server's proxy, or all."""

    mode: Literal["none", "allow", "open"] = "none"
    destinations: tuple[Destination, ...] = ()
    """The hosts that are allowed."""


class Policy(BaseModel):
    """The limits of one sandbox and of each run in it; a larger number is a looser policy in every field."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    memory: int
    """Bytes of memory of all processes together, files in the sandbox included (they live in memory)."""
    cpus: float
    """Processor share: 1.5 is one processor and a half."""
    pids: int
    """Processes and threads at once."""
    disk: int
    """Bytes of files in the working directory; as many again in the home directory and in /tmp."""
    files: int
    """Files and folders in the working directory; as many again in the home directory and in /tmp."""
    file_size: int
    """Bytes of one file."""
    timeout: float
    """Seconds of wall time for one run, at most."""
    grace: float
    """Seconds that code has to answer an interrupt, with its state kept, before it is killed."""
    cpu_time: float
    """Seconds of processor time that one run may use, all processes of the sandbox together."""
    output: int
    """Bytes that one run may print on both streams together."""
    network: Network = Network()

    @property
    def largest_file(self) -> int:
        """Bytes that one file can have: no more than its folder, not even of holes."""
        return min(self.file_size, self.disk)


LIMITS = tuple(name for name, field in Policy.model_fields.items() if field.annotation in (int, float))
"""All that is a number, and can be lowered."""

LEAST = {"memory": 8 << 20, "pids": 8}
"""With less than this no sandbox starts."""

OF_RUN = frozenset(("timeout", "grace", "cpu_time", "output"))
"""The limits of a run. The others are those of a sandbox, which has them from its start to its end."""


_UNITS = {
    **dict.fromkeys(("memory", "disk", "file_size", "output"), "bytes"),
    **dict.fromkeys(("timeout", "grace", "cpu_time"), "seconds"),
    "cpus": "processors",
    "pids": "processes and threads",
    "files": "files and folders",
}
_LONG = 10**18


def narrow(policy: Policy, lower: Mapping[str, object], whose: str = "the profile's") -> Policy:
    """Returns the policy with some limits lowered; `whose` they are stands in messages.

    Raises `PolicyDenied` for a value above the policy's own or not above zero, `InvalidArgument` for a name that is no
    limit or a value that is no number; `None` leaves a limit as it is.
    """
    changed: dict[str, float] = {}
    for name, value in lower.items():
        if value is None:
            continue
        if name not in LIMITS:
            raise InvalidArgument(f"{quoted(str(name), 40)} is no limit; there are: {', '.join(LIMITS)}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidArgument(f"{name} must be a number of {_UNITS[name]}; got {quoted(str(value), 40)}")
        limit = getattr(policy, name)
        least = LEAST.get(name)
        if not ((least or 0) <= value <= limit and value > 0):
            lowest = f"at least {least}" if least else "above 0"
            raise PolicyDenied(f"{name} must be {lowest} and at most {_said(limit)}, {whose} limit; got {_said(value)}")
        if isinstance(limit, int) and value != int(value):
            raise PolicyDenied(f"{name} must be a whole number; got {value:g}")
        changed[name] = int(value) if isinstance(limit, int) else float(value)
    # Checked above, and asked for by every run: validating the whole policy again would cost more than all of this.
    return policy.model_copy(update=changed) if changed else policy


def _said(value: float) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    # Of many digits Python makes no text, nor a float.
    return str(value) if abs(value) < _LONG else "a number out of all bounds"
