"""The part of the profile that one engine reads."""

from collections.abc import Mapping

from ..toml.model import Section


class Settings(Section):
    """The tables of the profile for one engine: each field is the table of the same name."""

    def languages(self) -> Mapping[str, str]:
        """The names of languages in these tables, by their keys in the profile."""
        return {}

    def files(self) -> Mapping[str, str]:
        """The files of this machine that these tables name, by their keys in the profile; an empty one is not set."""
        return {}
