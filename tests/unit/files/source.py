"""Where artifacts come from, in tests without sessions."""

from dataclasses import dataclass

from llm_sandbox_mcp.base.principal import ANONYMOUS, Principal


@dataclass(frozen=True, slots=True)
class Source:
    """What a store needs to know of a session."""

    id: str
    owner: Principal = ANONYMOUS
