"""Secrets for domains: the proxy adds them to requests, so that code never gets them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..base.destinations import Destination
from ..base.errors import ProfileError
from ..profile.sections import SecretSection

_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")


@dataclass(frozen=True, slots=True)
class Secret:
    """A header for all requests to one destination."""

    destination: Destination
    header: str
    """The name of the header in lower case."""
    value: str = field(repr=False)


def read_secrets(sections: Sequence[SecretSection], environ: Mapping[str, str]) -> tuple[Secret, ...]:
    """The secrets of a profile with their values; raises `ProfileError`, which never contains a value."""
    return tuple(
        Secret(Destination.parse(section.domain), section.header.lower(), read_value(number, section, environ))
        for number, section in enumerate(sections)
    )


def read_value(number: int, section: SecretSection, environ: Mapping[str, str]) -> str:
    """The value of the secret with that number; raises `ProfileError`, which never contains it."""
    key = f"network.secrets.{number}.{'value_env' if section.value_env else 'value_file'}"
    source = section.value_env or section.value_file
    if section.value_env:
        text = environ.get(source, "")
    else:
        try:
            text = Path(source).read_bytes().decode("latin-1")
        except OSError as error:
            raise ProfileError(f"{source} cannot be read: {error.strerror}", "make it readable", key=key) from error
    text = text.strip()
    if not _VALUE.fullmatch(text):
        problem = "has no value" if not text else "has characters that no header can contain"
        raise ProfileError(f"{source} {problem}", "set it to one line of ASCII", key=key)
    return text
