"""The files below the working directory of a sandbox, as a command in it tells of them."""

from contextlib import suppress

from .base import WORKDIR, Files

LIST = (
    rf"find {WORKDIR} -mindepth 1 \( -name '.*' -o -name node_modules -o -name __pycache__ \) -prune -o "
    r"-type f -printf '%C@ %T@ %s %i %P\0' | head -z -n 10000"
)
"""For a shell."""


def read_list(said: bytes) -> Files:
    """What the command printed; what is not in its form, or has a name that is not UTF-8, does not count."""
    files = {}
    for record in said.split(b"\0")[:-1]:
        *stamp, name = record.split(b" ", 4)
        with suppress(ValueError):
            files[name.decode()] = tuple(int(part.replace(b".", b"")) for part in stamp)
    return files
