"""A folder for temporary files that goes with those who use it."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_IN_MEMORY = "/dev/shm"
_BYTES = 4 * 2**30
"""That have to be free there: what disks of sandboxes hold is in it too."""


@contextmanager
def scratch() -> Iterator[str]:
    """Has this process, and what it starts, write temporary files to a folder that nobody else writes to, and removes it.

    In memory where there is room, and programs there may be run: tests make and delete so many files that some disks come
    to search milliseconds for a place for the next.
    """
    before = os.environ.get("TMPDIR"), tempfile.tempdir
    # One is in another, and the address of a socket in it has 107 bytes.
    with tempfile.TemporaryDirectory(prefix="t-", dir=_in_memory(), ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)  # sandboxes run as other users
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        try:
            yield folder
        finally:
            variable, tempfile.tempdir = before
            os.environ.pop("TMPDIR")
            if variable is not None:
                os.environ["TMPDIR"] = variable


def _in_memory() -> str | None:
    if "TMPDIR" in os.environ or not os.access(_IN_MEMORY, os.W_OK):
        return None
    there = os.statvfs(_IN_MEMORY)
    roomy = there.f_bavail * there.f_frsize >= _BYTES and not there.f_flag & os.ST_NOEXEC
    return _IN_MEMORY if roomy else None
