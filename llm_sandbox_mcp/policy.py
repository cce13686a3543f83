"""What code may do, and the one way to change it: downwards."""

from pydantic import BaseModel, ConfigDict

from .errors import PolicyDenied


class Policy(BaseModel):
    """The limits of one sandbox and of each run in it; a larger value is a looser policy in every field."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    memory: int
    """Bytes of memory of all processes together, files in the sandbox included (they live in memory)."""
    cpus: float
    """Processor share: 1.5 is one processor and a half."""
    pids: int
    """Processes and threads at once."""
    disk: int
    """Bytes of files in the working directory; as many again in the home directory and in /tmp."""
    timeout: float
    """Seconds of wall time for one run, at most."""
    output: int
    """Bytes that one run may print on both streams together."""


def narrow(policy: Policy, **lower: float | None) -> Policy:
    """Returns the policy with some limits lowered.

    Raises `PolicyDenied` for a value above the policy's own or not above zero; `None` leaves a limit as it is.
    """
    changed: dict[str, float] = {}
    for name, value in lower.items():
        if value is None:
            continue
        limit = getattr(policy, name)
        if not 0 < value <= limit:
            raise PolicyDenied(f"{name} must be above 0 and at most {limit:g}, the profile's limit; got {value:g}")
        if isinstance(limit, int) and value != int(value):
            raise PolicyDenied(f"{name} must be a whole number; got {value:g}")
        changed[name] = int(value) if isinstance(limit, int) else float(value)
    # Checked above, and asked for by every run: validating the whole policy again would cost more than all of this.
    return policy.model_copy(update=changed) if changed else policy
