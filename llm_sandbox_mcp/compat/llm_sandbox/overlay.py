"""The settings that result from a program's arguments, as tables of a profile."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...base.errors import MissingPackage, ProfileError
from ...profile.profile import Profile, load_profile
from .exceptions import ValidationError


@dataclass
class Overlay:
    """Settings for one backend; `refuse` makes the error for what it does not support, so that nothing is ignored."""

    backend: str
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    _set_by: dict[str, str] = field(default_factory=dict)
    """The argument that set each key; errors name it, because the program did not write the key."""

    def set(self, argument: str, key: str, value: object) -> None:
        """Sets a key of the profile, such as limits.memory."""
        section, _, name = key.partition(".")
        self.settings.setdefault(section, {})[name] = value
        self._set_by[key] = argument

    def add(self, argument: str, key: str, value: object) -> None:
        """Adds to a list of the profile."""
        section, _, name = key.partition(".")
        values = self.settings.setdefault(section, {}).setdefault(name, [])
        self._set_by[f"{key}.{len(values)}"] = argument
        values.append(value)

    def environment(self, argument: str, language: str, variables: Mapping[str, str]) -> None:
        """Adds to the environment variables of one language."""
        table = self.settings.setdefault("languages", {}).setdefault(language, {}).setdefault("env", {})
        self._set_by |= {f"languages.{language}.env.{name}": argument for name in variables}
        table |= variables

    def profile(self, base: str) -> Profile:
        """The profile, changed by these settings; the error for a mistake names the argument that set it."""
        try:
            return load_profile(base, self.settings)
        except MissingPackage:
            raise  # no argument is wrong
        except ProfileError as error:
            for key, argument in self._set_by.items():
                if f"{error.key}.".startswith(f"{key}.") or (error.key and key.startswith(f"{error.key}.")):
                    raise self.refuse(argument, error.reason, error.step) from error
            raise

    def only(self, argument: str, *backends: str) -> None:
        """Raises `ValidationError` unless the backend is one of these."""
        if self.backend not in backends:
            raise self.refuse(argument, f"it is for {' and '.join(backends)}", "leave it out, or name such a backend")

    def refuse(self, argument: str, why: str, step: str = "") -> ValidationError:
        """The error for an argument, which names the backend and the argument."""
        return ValidationError(f"backend {self.backend}: {argument}: {why}", step)


ENGINES = ("docker", "podman")
"""The backends whose sandboxes are containers, with the settings of `[containers]`."""
