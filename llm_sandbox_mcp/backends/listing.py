"""Commands that list the files and missing programs of a sandbox from inside."""

from collections.abc import Mapping
from contextlib import suppress

from .layout import WORKDIR

Files = Mapping[str, tuple[int, ...]]
"""Regular files below a folder, each with numbers that differ after the file is changed."""


def list_command(folder: str) -> str:
    """A shell command that prints the files below a folder for `read_list`."""
    return (
        rf"find {folder} -mindepth 1 \( -name '.*' -o -name node_modules -o -name __pycache__ \) -prune -o "
        r"-type f -printf '%C@ %T@ %s %i %P\0' | head -z -n 10000"
    )


LIST = list_command(WORKDIR)

MISSING = 'for program; do command -v "$program" >/dev/null || echo "$program"; done'
"""A shell command that prints which of its arguments, names of programs, it does not find."""


def read_list(output: bytes) -> Files:
    """The files in the output of `LIST`; ignores malformed records and names that are not UTF-8."""
    files = {}
    for record in output.split(b"\0")[:-1]:
        *stamp, name = record.split(b" ", 4)
        with suppress(ValueError):
            files[name.decode()] = tuple(int(part.replace(b".", b"")) for part in stamp)
    return files
