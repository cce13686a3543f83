"""Which files and programs a sandbox has, as commands in it tell."""

from collections.abc import Mapping
from contextlib import suppress

from .layout import WORKDIR

Files = Mapping[str, tuple[int, ...]]
"""Regular files below the working directory, and for each what differs once it is changed."""

LIST = (
    rf"find {WORKDIR} -mindepth 1 \( -name '.*' -o -name node_modules -o -name __pycache__ \) -prune -o "
    r"-type f -printf '%C@ %T@ %s %i %P\0' | head -z -n 10000"
)
"""For a shell."""

MISSING = 'for program; do command -v "$program" >/dev/null || echo "$program"; done'
"""The same; the programs that are looked for are its arguments."""


def read_list(said: bytes) -> Files:
    """What the command printed; what is not in its form, or has a name that is not UTF-8, does not count."""
    files = {}
    for record in said.split(b"\0")[:-1]:
        *stamp, name = record.split(b" ", 4)
        with suppress(ValueError):
            files[name.decode()] = tuple(int(part.replace(b".", b"")) for part in stamp)
    return files
