"""What one engine reads of the profile."""

from collections.abc import Mapping

from ..toml_model import Section


class Settings(Section):
    """The tables of the profile that are about one engine: each field is a table of its name."""

    def languages(self) -> Mapping[str, str]:
        """The names of languages that stand in it, by their keys in the profile."""
        return {}
