"""What a program's arguments come to: settings of a profile, in the words of its file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .exceptions import ValidationError


@dataclass
class Overlay:
    """Settings for one backend; `refuse` raises for what it cannot do, so that nothing is ignored in silence."""

    backend: str
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)

    def set(self, section: str, key: str, value: object) -> None:
        """Sets a key of the profile."""
        self.settings.setdefault(section, {})[key] = value

    def extend(self, section: str, key: str, values: Sequence[object]) -> None:
        """Adds to a list of the profile."""
        self.settings.setdefault(section, {}).setdefault(key, []).extend(values)

    def language(self, name: str, key: str, value: Mapping[str, str]) -> None:
        """Adds to a table of one language."""
        table = self.settings.setdefault("languages", {}).setdefault(name, {})
        table[key] = {**table.get(key, {}), **value}

    def only(self, parameter: str, *backends: str) -> None:
        """Raises `ValidationError` unless the backend is one of these."""
        if self.backend not in backends:
            raise self.refuse(parameter, f"it is for {' and '.join(backends)}: leave it out, or name such a backend")

    def refuse(self, parameter: str, why: str) -> ValidationError:
        """The error for an argument, which names the backend and the parameter."""
        return ValidationError(f"backend {self.backend}: {parameter}: {why}")


ENGINES = ("docker", "podman")
"""The backends whose sandboxes are containers of this profile's `[containers]`."""
